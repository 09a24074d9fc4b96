"""What all tests rely on."""

import signal

# A shell starts a job in the background with SIGINT ignored, and nohup with SIGHUP; both are inherited. The tests of Ctrl-C
# and of a lost terminal send these signals to themselves and to programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
