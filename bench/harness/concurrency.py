"""Work in several threads at once."""

import threading


def in_threads(count, work):
    """Calls `work` with 0, 1, … in as many threads. Raises the first error when all have ended."""
    start_threads(count, work)()


def start_threads(count, work):
    """Starts the threads. Returns what waits for them, and raises the first error when all have ended."""
    errors = []

    def guarded(index):
        try:
            work(index)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    # Daemons, so that Ctrl-C ends the program while they wait for an answer.
    threads = [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    return join
