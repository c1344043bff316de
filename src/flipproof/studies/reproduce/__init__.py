"""The paper's evaluation, end to end: data, training, certification, figures, claims.

``experiment`` says what is trained and certified, ``workers`` runs it on all cores, ``results`` reads certificates off the
votes, ``claims`` holds the paper's claims against them, ``page`` writes it all down.
"""
