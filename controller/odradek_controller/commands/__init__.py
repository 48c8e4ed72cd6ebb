"""The controller's commands: each decides a request against an image, and returns records and a response.

Pure, except for the random numbers of the context. The controller appends and replays the records. An invalid request
gets an error in the response; every returned record is valid.
"""
