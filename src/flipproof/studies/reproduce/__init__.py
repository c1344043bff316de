"""The paper's evaluation, end to end: data, training, certification, figures, claims.

- ``experiment.py``: what is trained and certified
- ``readings.py``: certificates read off the votes
- ``claims.py``: the paper's claims, held against them
- ``paper_page.py``: figures, tables and the page
"""
