"""A Slurm of three nodes on this machine, in a directory of its own, for `cluster_checks`.

Debian's packages slurm-wlm and munge are enough; with slurmdbd and mariadb-server it has accounting too. Each
daemon is started in the foreground, as a child of this process, and is ended by its id. No file outside the
directory is written, and no service of the system is touched.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

NODES = ("n1", "n2", "n3")
CPUS, MEMORY = 4, 8000  # of a node, as Slurm believes; MB
DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db")

CONF = """\
ClusterName=here
SlurmctldHost={host}
SlurmctldPort={ctld}
SlurmUser={user}
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
JobRequeue=1
KillWait=10
OverTimeLimit=0
MinJobAge=300
SlurmdTimeout=20
SlurmctldTimeout=20
ReturnToService=2
MaxArraySize=1001
SlurmdParameters=config_overrides
{accounting}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs={cpus} RealMemory={memory} State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs={cpus} RealMemory={memory} State=UNKNOWN
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={n3} CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=60 DefMemPerCPU=1500 State=UP
PartitionName=alone Nodes=n1 MaxTime=60 DefMemPerCPU=1500 State=UP
"""

DBD = """\
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
DbdHost=localhost
DbdPort={dbd}
SlurmUser={user}
PidFile={place}/slurmdbd.pid
LogFile={place}/slurmdbd.log
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm
StorageType=accounting_storage/mysql
StorageHost=localhost
StoragePort={sql}
StorageUser={user}
StoragePass=none
StorageLoc=slurm_here
"""


def missing(accounting: bool) -> str | None:
    """What of the programs is not on this machine, and how it is had; None: all are, and this is root."""
    names = (*DAEMONS, *(ACCOUNTING if accounting else ()))
    absent = [name for name in names if shutil.which(name, path=_path()) is None]
    if absent:
        packages = "slurm-wlm munge" + (" slurmdbd mariadb-server" if accounting else "")
        return f"{', '.join(absent)} not found: apt-get install --no-install-recommends {packages}"
    return None if os.geteuid() == 0 else "slurmd starts jobs for others, so it needs root"


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class Slurm:
    """The cluster. Use it in a with statement."""

    def __init__(self, place: Path, accounting: bool) -> None:
        self.place, self.accounting = place, accounting
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf"), "PATH": _path()}

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all daemons, and what their jobs have left, by their ids."""
        if "slurmctld" in self.daemons:
            self.run("scancel", "--full", f"--user={self.user}")
            deadline = time.monotonic() + 40
            while self.run("squeue", "-h").strip() and time.monotonic() < deadline:
                time.sleep(0.5)
        for name in reversed([*self.daemons]):
            self.end(name)

    def run(self, *command: str) -> str:
        """What a command of Slurm prints; its errors too."""
        done = subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return done.stdout

    # ---- daemons -------------------------------------------------------------------------------------

    def start(self, name: str, *command: str) -> None:
        """Start a daemon in the foreground; what it prints goes to NAME.out."""
        with (self.place / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us, who end it
            )

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon."""
        daemon = self.daemons.pop(name)
        if daemon.poll() is None:
            daemon.send_signal(how)
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        self.start(name, "slurmd", "-D", "-N", name, "-f", str(self.place / "slurm.conf"))

    def _start(self) -> None:
        place, ports = self.place, iter(_ports(6))
        names = ("ctld", "n1", "n2", "n3", "dbd", "sql")
        values = {**dict(zip(names, ports, strict=True)), "place": place, "user": self.user}
        values |= {"host": socket.gethostname(), "cpus": CPUS, "memory": MEMORY}
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (place / name).mkdir(parents=True)
        place.chmod(0o755)  # munge and Slurm look at who may write here
        key = place / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        accounting = "AccountingStorageType=accounting_storage/none"
        if self.accounting:
            accounting = (
                "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\n"
                f"AccountingStoragePort={values['dbd']}\nAccountingStoragePass={place}/munge.socket"
            )
        (place / "slurm.conf").write_text(CONF.format(**values, accounting=accounting))
        own = [f"--{name}={place}/munge.{ext}" for name, ext in (("key-file", "key"), ("socket", "socket"))]
        own += [f"--pid-file={place}/munge.pid", f"--log-file={place}/munge.log", f"--seed-file={place}/seed"]
        self.start("munged", "munged", "--foreground", "--force", *own)
        until(lambda: (place / "munge.socket").exists(), 20, "munged has no socket")
        if self.accounting:
            self._start_accounting(values)
        self.start("slurmctld", "slurmctld", "-D", "-f", str(place / "slurm.conf"))
        for node in NODES:
            self.start_node(node)
        until(self.ready, 90, f"the nodes did not come up: see {place}/*.log")

    def _start_accounting(self, values: dict[str, object]) -> None:
        place, sql = self.place, self.place / "sql"
        file = place / "slurmdbd.conf"
        file.write_text(DBD.format(**values))
        file.chmod(0o600)
        common = [f"--datadir={sql}", f"--user={self.user}"]
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", *common, "--auth-root-authentication-method=normal"],
            env=self.environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        socket_file = place / "sql.socket"
        own = [f"--socket={socket_file}", f"--port={values['sql']}", "--bind-address=127.0.0.1"]
        own += [f"--pid-file={place}/sql.pid", "--innodb-buffer-pool-size=64M", "--skip-log-bin"]
        self.start("mariadbd", "mariadbd", "--no-defaults", *common, *own)
        until(socket_file.exists, 60, "the database did not start")
        client = ["mariadb", "--no-defaults", f"--socket={socket_file}", "--user=root", "--execute"]
        who = [f"'{self.user}'@'{host}'" for host in ("localhost", "127.0.0.1")]
        lines = [f"CREATE USER IF NOT EXISTS {one} IDENTIFIED BY 'none'" for one in who]
        lines += [f"ALTER USER {one} IDENTIFIED BY 'none'" for one in who]
        lines += [f"GRANT ALL ON slurm_here.* TO {one}" for one in who]
        subprocess.run([*client, "; ".join(lines)], env=self.environment, check=True)
        dbd = {**self.environment, "MYSQL_UNIX_PORT": str(socket_file)}
        self.environment, before = dbd, self.environment
        self.start("slurmdbd", "slurmdbd", "-D")
        self.environment = before
        cluster = "sacctmgr", "-i", "add", "cluster", "here"
        until(lambda: "here" in self.run(*cluster).lower(), 60, "slurmdbd does not answer")

    def ready(self) -> bool:
        """Whether all nodes are idle."""
        return self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split() == ["idle"] * len(NODES)


def until(holds: Callable[[], object], seconds: float, why: str) -> None:
    """Wait until it holds. Raises TimeoutError with this reason."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(why)
        time.sleep(0.2)


def _ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found
