"""Data sets × methods × published folds: settings chosen on validation graphs, all test graphs certified.

- ``config.py``: the config file, checked before any work
- ``jobs.py``: an experiment of one method on one fold each, stored whole
- ``standings.py``: means and intervals over folds, paired tests, files of numbers
- ``standings_page.py``: what a reader sees
"""
