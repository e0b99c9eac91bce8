"""What the course's notebooks share. Importing this package imports no TensorFlow."""
