"""Stands in for ssh with sessions through a control master, without another host.

stand_in.py foreground SOCKET COMMAND…  become a master, run COMMAND, and exit once every session
has ended stand_in.py persist SOCKET COMMAND…     start a master in the background, and run COMMAND
through it stand_in.py background SOCKET           start a master in the background stand_in.py
session SOCKET COMMAND…     run COMMAND through the master

A session ends with its master, as a session of ssh does.
"""

import os
import socket
import subprocess
import sys
import threading

mode, path, *command = sys.argv[1:]
sessions = []


def run_session(connection):
    """Runs the command of another process with the files of that process."""
    text, files, _, _ = socket.recv_fds(connection, 65536, 3)
    child = subprocess.Popen(
        text.decode().split("\0"), stdin=files[0], stdout=files[1], stderr=files[2]
    )
    for file in files:
        os.close(file)
    child.wait()
    connection.send(b"ended")


def serve(master):
    master.settimeout(1)
    while True:
        try:
            connection, _ = master.accept()
        except TimeoutError:
            if not os.path.exists(path):
                os._exit(0)  # The test is over.
            continue
        sessions.append(threading.Thread(target=run_session, args=[connection]))
        sessions[-1].start()


def listen():
    master = socket.socket(socket.AF_UNIX)
    master.bind(path)
    master.listen()
    return master


def start_master():
    """Starts a master as ssh does: in a session of its own, with none of this process's files."""
    master = listen()
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in range(3):
            os.dup2(nothing, file)
        serve(master)
    master.close()
    os.wait()


if mode == "foreground":
    threading.Thread(target=serve, args=[listen()], daemon=True).start()
    subprocess.call(command)
    for session in sessions:
        session.join()
elif mode == "background":
    start_master()
else:
    if mode == "persist":
        start_master()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, ["\0".join(command).encode()], [0, 1, 2])
        sys.exit(0 if connection.recv(16) else 255)
