"""The local engine of jobs: one process, files on its disk, bounded memory."""
