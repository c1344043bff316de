"""The run folder: what was asked, the evidence of every graph, the table of certificates, and their verification."""
