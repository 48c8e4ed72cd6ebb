"""What is asked of the controller: a request is checked against an image and answered with records and a response

Pure but for the randomness that is handed in. Nothing here changes state; the controller appends the records and
replays them. An error of a client is part of the response; a record in the answer has passed all checks.
"""
