"""What each command of ``python -m helpers`` says in its help and does when it is called.

A command imports what is heavy when it is called, so that ``--help`` stays quick.
"""
