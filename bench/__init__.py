"""Speed and size compared with other brokers, in one run: `python -m bench` (or `make bench`) prints one table.

`rows/` has the measurements, a module for each kind of work; `load/` the clients, each in its own process and the same
for every broker; `session.py` the brokers and the order of their runs; `table.py` the output. `log.py`, `wire.py` and
`records.py` measure the libraries alone and run as programs too. Not part of the distribution.
"""
