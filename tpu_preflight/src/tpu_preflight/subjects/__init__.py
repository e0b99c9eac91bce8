"""What a preflight can be asked about: a file for each library; `opening` tells which it is.

The checklist asks nothing but this of each: its ``name``; ``is_jax``; ``check_data``, before it is
traced; ``jobs``, what each target would run; ``check_refused`` where there is no such program, else
``check_step``; ``program``, for another number of rows.
"""
