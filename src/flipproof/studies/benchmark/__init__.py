"""Data sets × models × defences × splits, with the lines that every defence must be held against.

- ``config.py``: the config file, checked before any work
- ``defences.py``: what is done against flips: smoothing, voting, nothing, seeing no edge
- ``jobs.py``: one training and certification each, stored whole
- ``results.py``: means and standard deviations over splits
- ``page.py``, ``figures.py``: what a reader sees
- ``command.py``: ``flipproof benchmark``; ``tune.py``: ``flipproof tune``, the same engine on validation graphs
"""
