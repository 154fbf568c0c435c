"""Hosts for a job under test: network namespaces with a name, an address and /etc/hosts of their own, on one switch.

A command on a host has a PID namespace of its own, too: ranks of two hosts see nothing of each other's processes."""

import os
import pathlib
import shutil
import subprocess


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Hosts:
    """Creates the hosts node-0, node-1, ...; they end with the `with` block, after the processes on them.

    Host number i has the address 10.77.0.(i + 1) at eth0. Needs root."""

    def __init__(self, count):
        self.count = count
        self._switch = f"diagnosis-{os.getpid()}-switch"

    def name(self, host):
        return f"node-{host}"

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def namespace(self, host):
        return f"diagnosis-{os.getpid()}-{host}"

    def __enter__(self):
        run("ip", "netns", "add", self._switch)
        self._in(self._switch, "ip", "link", "add", "bridge", "type", "bridge")
        self._in(self._switch, "ip", "link", "set", "bridge", "up")
        for host in range(self.count):
            self._connect(host)
            self.write_names(host)
        return self

    def __exit__(self, *_):
        for namespace in [self._switch] + [self.namespace(host) for host in range(self.count)]:
            subprocess.run(["ip", "netns", "delete", namespace], check=False)
            shutil.rmtree(self._files_of(namespace), ignore_errors=True)

    def write_names(self, host, wrong=None):
        """Writes the host's /etc/hosts. wrong: addresses by the number of a host, in place of the true ones."""
        lines = ["127.0.0.1 localhost"]
        for other in range(self.count):
            lines.append(f"{(wrong or {}).get(other, self.address(other))} {self.name(other)}")
        folder = self._files_of(self.namespace(host))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("\n".join(lines) + "\n")

    def enter(self, host, setup="true"):
        """Returns the words before a command that run it on the host, after a shell command in a mount namespace."""
        script = f"hostname {self.name(host)} && {setup} && exec \"$@\""
        own = ["--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["ip", "netns", "exec", self.namespace(host), "unshare", *own, "sh", "-c", script, "sh"]

    def cut(self, host):
        """Takes the host off the switch: its packets vanish, and no connection is closed."""
        self._in(self._switch, "ip", "link", "set", f"port{host}", "nomaster")

    def _connect(self, host):
        namespace = self.namespace(host)
        run("ip", "netns", "add", namespace)
        run("ip", "link", "add", "eth0", "netns", namespace, "type", "veth", "peer", f"port{host}", "netns",
            self._switch)
        self._in(namespace, "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            self._in(namespace, "ip", "link", "set", link, "up")
        self._in(self._switch, "ip", "link", "set", f"port{host}", "master", "bridge")
        self._in(self._switch, "ip", "link", "set", f"port{host}", "up")

    @staticmethod
    def _in(namespace, *words):
        run("ip", "netns", "exec", namespace, *words)

    @staticmethod
    def _files_of(namespace):
        return pathlib.Path("/etc/netns") / namespace
