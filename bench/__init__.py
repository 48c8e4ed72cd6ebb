"""Speed and size beside other brokers, in one run: `python -m bench` (or `make bench`) prints one table.

`rows/` holds what is measured, a module for each kind of work; `load/` the clients, each in a process of its own, the
same for every broker; `session.py` the brokers and their turns; `table.py` what is written. `log.py`, `wire.py` and
`records.py` measure the libraries alone and run by themselves too. Not part of the distribution.
"""
