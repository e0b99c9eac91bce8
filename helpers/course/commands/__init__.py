"""What each command of ``tpu-course`` says in its help and does when it is called.

A command imports what is heavy when it is called, so that ``--help`` stays quick.
"""
