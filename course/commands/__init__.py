"""What each command of ``tpu-course`` says in its help and does; heavy imports come when called."""
