"""Data sets × models × defences × splits, beside the lines that every defence must be held against.

- ``plan_file.py``: the config file, checked before any work
- ``jobs.py``: one training and certification each, stored whole
- ``outcomes.py``: means and standard deviations over splits
- ``benchmark_page.py``: what a reader sees
"""
