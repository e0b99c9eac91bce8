"""What XLA makes of your code, shown: compared and counted."""
