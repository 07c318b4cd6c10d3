"""Kernels that are forked from a process which has imported the common modules (`forks`)."""

import os
from multiprocessing.process import BaseProcess
from pathlib import Path

from forks import CAN_FORK, process, serve
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner
from nbclient import NotebookClient


class Forked:
    """A forked process, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess):
        self.process, self.pid = process, process.pid
        self.terminate, self.kill = process.terminate, process.kill

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        return self.process.exitcode

    def wait(self) -> int | None:
        """Wait for the end, and return the exit status."""
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)


class ForkedKernel(LocalProvisioner):
    """How jupyter_client starts a kernel: by a fork instead of a command."""

    async def launch_kernel(self, cmd: list[str], **options) -> KernelConnectionInfo:
        """Fork a kernel; of the command it takes the arguments that follow the module's name."""
        self.cwd = options.get("cwd") or Path.cwd()
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        environment = options.get("env") or dict(os.environ)
        self.process = Forked(process(serve, arguments, str(self.cwd), environment))
        self.pid = self.process.pid
        return self.connection_info


class Client(NotebookClient):
    """Executes a notebook in a forked kernel, where that is possible."""

    def create_kernel_manager(self):
        """Return the kernel's manager."""
        manager = super().create_kernel_manager()
        if CAN_FORK:
            manager.provisioner = ForkedKernel(kernel_spec=manager.kernel_spec, parent=manager)
        return manager
