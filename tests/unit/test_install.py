#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What make install puts where, from a small tree with the real files of scripts/install; and that
systemd, udev, DKMS and modprobe can use it."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap

MAIN = "int main(void)\n{\n\treturn 0;\n}\n"
HEADERS = sorted(path for path in glob.glob("/usr/src/linux-headers-*-amd64")
                 if os.path.exists(os.path.join(path, "include/generated/utsrelease.h")))
KEPT = ("CC", "HOME", "LANG", "PATH", "TMPDIR")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def source(name):
    return read(tap.ROOT, "scripts", "install", name)


class Install(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tarn-install-")
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("Makefile", "Kbuild", "scripts/fetch-model", "daemon/tarnd.1"):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            shutil.copy(os.path.join(tap.ROOT, name), self.path(name))
        for name in ("kmod", "uapi", "scripts/install"):
            shutil.copytree(os.path.join(tap.ROOT, name), self.path(name))
        for name in ("daemon/main.c", "daemon/cli_main.c"):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write(MAIN)
        self.dest = self.path("dest")

    def path(self, *names):
        return os.path.join(self.root, *names)

    def make(self, *arguments):
        environment = {k: v for k, v in os.environ.items() if k in KEPT}
        result = subprocess.run(["make", "-C", self.root, *arguments], text=True, check=False,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def installed(self):
        return sorted(os.path.relpath(os.path.join(folder, name), self.dest)
                      for folder, _, names in os.walk(self.dest) for name in names)

    def run_tool(self, *command):
        result = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}")
        return result.stdout

    # ---- what goes where ----

    def test_all_files_are_listed(self):
        self.make("install", "DESTDIR=" + self.dest)
        system = [
            "usr/lib/systemd/system/tarnd.service", "usr/lib/systemd/system/tarnd.socket",
            "usr/lib/sysusers.d/tarn.conf", "usr/lib/udev/rules.d/60-kvpool.rules",
            "usr/lib/modprobe.d/kvpool.conf", "usr/src/kvpool-1/Kbuild",
            "usr/src/kvpool-1/dkms.conf", "usr/src/kvpool-1/uapi/kvpool.h"]
        system += [f"usr/src/kvpool-1/kmod/{name}" for name in os.listdir(self.path("kmod"))
                   if name.endswith((".c", ".h"))]
        ours = ["bin/tarn", "bin/tarnd", "include/linux/kvpool.h", "libexec/tarn/fetch-model",
                "share/man/man1/tarnd.1"]
        self.assertEqual(self.installed(),
                         sorted(system + ["usr/local/" + name for name in ours]))

    def test_other_prefix_leaves_the_system_alone(self):
        # Without DESTDIR it must not try: this may run as root.
        self.make("install", "PREFIX=" + self.dest, "SYSTEM_LIB=" + self.path("system"),
                  "SYSTEM_SRC=" + self.path("system"))
        self.assertIn("bin/tarnd", self.installed())
        self.assertFalse(os.path.exists(self.path("system")))

    def test_every_file_of_the_folder_is_installed_somewhere(self):
        makefile = read(tap.ROOT, "Makefile")
        for name in os.listdir(self.path("scripts/install")):
            with self.subTest(name=name):
                self.assertIn(name, makefile)

    @unittest.skipUnless(HEADERS, "no kernel headers here")
    def test_modules(self):
        self.make("install-modules", "KDIR=" + HEADERS[-1], "DESTDIR=" + self.dest)
        release = os.path.basename(HEADERS[-1]).replace("linux-headers-", "")
        self.assertEqual(self.installed(), [f"lib/modules/{release}/updates/kvpool.ko",
                                            "usr/lib/modules-load.d/kvpool.conf"])
        self.assertRegex(read(self.dest, "usr/lib/modules-load.d/kvpool.conf"), r"(?m)^kvpool$")

    # ---- whether it can be used ----

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_units(self):
        """Installed for real, below a folder: the program has to be there."""
        system = self.path("system")
        self.make("install", "install-system", "PREFIX=" + self.dest, "SYSTEM_LIB=" + system,
                  "SYSTEM_SRC=" + system)
        units = [os.path.join(system, "systemd/system", name)
                 for name in ("tarnd.service", "tarnd.socket")]
        self.assertIn(f"ExecStart={self.dest}/bin/tarnd ", read(units[0]))
        shown = self.run_tool("systemd-analyze", "verify", "--man=no", *units)
        self.assertNotIn("tarnd.", shown)

    def test_options_of_the_service_exist(self):
        described = read(tap.ROOT, "daemon", "tarnd.1").replace("\\-", "-")
        for option in re.findall(r"--[a-z-]+", source("tarnd.service")):
            with self.subTest(option=option):
                self.assertIn(option, described)

    @unittest.skipUnless(shutil.which("systemd-sysusers"), "no systemd-sysusers here")
    def test_users(self):
        self.make("install-system", "DESTDIR=" + self.dest)
        root = self.path("sysroot")
        os.makedirs(os.path.join(root, "etc"))
        self.run_tool("systemd-sysusers", "--root=" + root,
                      os.path.join(self.dest, "usr/lib/sysusers.d/tarn.conf"))
        groups = read(root, "etc/group")
        self.assertRegex(groups, r"(?m)^kvpool:[^:]*:\d+:tarn$")
        self.assertRegex(groups, r"(?m)^tarn:")
        self.assertRegex(read(root, "etc/passwd"), r"(?m)^tarn:")

    def test_udev_rule(self):
        """Each part is of the form KEY op "value"; labels that are gone to exist."""
        text = source("60-kvpool.rules")
        rules = [line for line in text.splitlines() if line and not line.startswith("#")]
        for rule in rules:
            for part in rule.split(", "):
                self.assertRegex(part, r'^[A-Z]+(==|=)"[^"]+"$')
        for label in re.findall(r'GOTO="(\w+)"', text):
            self.assertIn(f'LABEL="{label}"', rules)
        self.assertIn('SUBSYSTEM=="misc", KERNEL=="kvpool", GROUP="kvpool", MODE="0660"', rules)
        self.assertIn('.name = "kvpool"', read(tap.ROOT, "kmod", "kvpool_main.c"))

    @unittest.skipUnless(
        shutil.which("udevadm") and subprocess.run(["udevadm", "verify", "--help"], check=False,
                                                   capture_output=True).returncode == 0,
        "no udevadm verify here")
    def test_udev_verify(self):
        self.run_tool("udevadm", "verify", "--resolve-names=never",
                      self.path("scripts/install/60-kvpool.rules"))

    def test_module_parameters_are_named_with_their_defaults(self):
        text = "".join(read(path) for path in glob.glob(os.path.join(tap.ROOT, "kmod", "*.c")))
        variables = dict(re.findall(r"module_param_named\((\w+), (\w+),", text))
        self.assertTrue(variables)
        defaults = {}
        for name, variable in variables.items():
            value = re.search(rf"\b{variable} = ([^;]+);", text)[1]
            defaults[name] = eval(re.sub(r"(\d)U?L*\b", r"\1", value))  # pylint: disable=eval-used
        shown = re.findall(r"(?m)^#options kvpool (\w+)=(\d+)$", source("modprobe-kvpool.conf"))
        self.assertEqual({name: int(value) for name, value in shown}, defaults)

    def test_dkms_version_is_the_module_s(self):
        version = re.search(r'MODULE_VERSION\("(.+)"\)', read(tap.ROOT, "kmod", "kvpool_main.c"))
        self.assertIn(f'PACKAGE_VERSION="{version[1]}"', source("dkms.conf"))

    @unittest.skipUnless(HEADERS, "no kernel headers here")
    def test_dkms_builds_from_what_is_installed(self):
        """As DKMS does: the file is a shell script, the sources lie in its tree, MAKE is run."""
        self.make("install-system", "DESTDIR=" + self.dest)
        tree = self.path("dkms")
        build = os.path.join(tree, "kvpool", "1", "build")
        shutil.copytree(os.path.join(self.dest, "usr/src/kvpool-1"), build)
        script = (f"kernel_source_dir={HEADERS[-1]} dkms_tree={tree}\n. ./dkms.conf\n"
                  'eval "${MAKE[0]}" && test -f "${BUILT_MODULE_NAME[0]}.ko" && eval "$CLEAN"')
        result = subprocess.run(["bash", "-euc", script], cwd=build, text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertFalse(os.path.exists(os.path.join(build, "kvpool.ko")))


if __name__ == "__main__":
    tap.main()
