"""Stands for the process that examines models; a light module, so that it starts at once."""

import os
import time

from helpers.xla.models.child import Examined


def obedient(pipe):
    while True:
        name = pipe.recv()
        if name == "TFKilled":
            os.kill(os.getpid(), 9)
        if name == "TFEndless":
            time.sleep(60)
        pipe.send(Examined(built=f"ImportError: {name}"))
