"""What scripts/gpu decides without a device: plan, reports, libraries, the dynamic linker, processes, results.

usage: runner_test.py TREE
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import types
import unittest

TREE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(TREE / "scripts/gpu"))

import catch_report
import context
import driver
import loader
import nvidia
import outcomes
import parts
import plan
import processes
import records
import results


def folder_of(test):
    place = tempfile.TemporaryDirectory()
    test.addCleanup(place.cleanup)
    return pathlib.Path(place.name)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class PlanTest(unittest.TestCase):
    def run_parts(self, durations, budget):
        """Parts with a limit of 60 s that take so long; [(status, limit given, reason)]"""
        clock, limits, found = Clock(), {}, []

        def taking(name, duration):
            def run(_, limit):
                limits[name] = limit
                clock.now += min(duration, limit)
                return outcomes.passed()

            return run

        all_parts = [parts.Part(str(i), 60, taking(str(i), duration)) for i, duration in enumerate(durations)]
        plan.run_parts(
            all_parts,
            types.SimpleNamespace(),
            budget,
            lambda part, outcome, _: found.append((outcome.status, limits.get(part.name), outcome.reason)),
            clock,
        )
        return found

    def test_each_part_has_its_limit_or_what_is_left(self):
        found = self.run_parts([50, 30, 100, 1], budget=120)
        self.assertEqual([limit for _, limit, _ in found], [60, 60, 40, None])
        self.assertEqual(found[3][0], "skipped")
        self.assertEqual(found[3][2], "0 s are left of the budget of 120 s")

    def test_an_exception_is_a_failure_of_its_part_alone(self):
        found = []
        all_parts = [parts.Part("a", 60, lambda *_: {}["nothing"]), parts.Part("b", 60, lambda *_: outcomes.passed())]
        plan.run_parts(all_parts, types.SimpleNamespace(), 100, lambda part, outcome, _: found.append(outcome), Clock())
        self.assertEqual([outcome.status for outcome in found], ["failed", "passed"])
        self.assertEqual(found[0].reason, "KeyError: 'nothing'")

    def test_names_of_parts_differ(self):
        names = [part.name for part in parts.all_parts()]
        self.assertEqual(len(names), len(set(names)))

    def test_every_file_of_tests_that_a_part_selects_exists(self):
        files = {path.stem for path in (TREE / "tests").rglob("*_test.cc")}
        chosen = [part.run.args[0] for part in parts.all_parts() if getattr(part.run, "func", None) is parts.tests]
        tags = [selection.strip("[#]") for selection in chosen if selection.startswith("[#")]
        self.assertGreater(len(tags), 10)
        self.assertEqual([tag for tag in tags if tag not in files], [])


class ReportTest(unittest.TestCase):
    FAILED = """<Catch name="device_test"><Group name="device_test">
      <TestCase name="one &lt;a&gt;" tags="[#x]"><OverallResult success="true"/></TestCase>
      <TestCase name="two" tags="[#x]"><Info>
          add in float32
        </Info><Expression success="false" type="CHECK"><Original>difference(a, b) &lt; 1</Original>
        <Expanded>2.0 &lt; 1</Expanded></Expression>
        <Exception filename="a" line="2">CUDA is gone</Exception><OverallResult success="false"/></TestCase>"""

    def test_failures_have_what_was_tested_and_compared(self):
        report = catch_report.read(self.FAILED)
        self.assertEqual(report["cases"], 2)
        self.assertIsNone(report["unfinished"])
        self.assertEqual(
            report["failed"],
            [
                {
                    "name": "two",
                    "failures": ["add in float32: difference(a, b) < 1, which is 2.0 < 1", "Exception: CUDA is gone"],
                }
            ],
        )

    def test_the_case_in_which_a_program_ended_is_named(self):
        report = catch_report.read(self.FAILED + '<TestCase name="three" tags=""><Info>matmul')
        self.assertEqual(report["unfinished"], "three")

    def test_the_outcome_of_a_test_program_that_failed_names_the_cases(self):
        ended = processes.Finished(1, False, 1.0, self.FAILED, "a warning\n")
        common = types.SimpleNamespace(program=pathlib.Path, run=lambda *_: ended)
        outcome = parts.tests("[#x]", common, 60)
        self.assertEqual(outcome.reason, "exit code 1, 1 of 2 test cases failed")
        self.assertEqual(outcome.facts["failed"], ["two"])
        self.assertEqual(outcome.tail[:2], ["a warning", "[two]"])

    def test_a_selection_that_finds_no_test_is_a_failure(self):
        common = types.SimpleNamespace(program=pathlib.Path, run=lambda *_: processes.Finished(0, False, 1.0, "", ""))
        self.assertEqual(parts.tests("[#x]", common, 60).status, "failed")


class JobTest(unittest.TestCase):
    def test_losses_are_compared_one_by_one(self):
        self.assertEqual(records.largest_difference([2.0, 4.0], [2.0, 4.1]), abs(4.0 - 4.1) / 4.0)
        for found in ([], [2.0], [2.0, float("nan")]):
            self.assertEqual(records.largest_difference([2.0, 4.0], found), float("inf"))
        self.assertEqual(records.largest_difference([], []), float("inf"))

    def test_the_rate_is_that_of_all_steps_behind_the_warm_up(self):
        path = folder_of(self) / "m.jsonl"
        rates = [1, 100, 300]
        path.write_text(
            "".join(json.dumps({"step": i, "loss": 1.0, "samples_per_s": rate}) + "\n" for i, rate in enumerate(rates))
            + '{"rank": 0}\n{"step": 3, "lo'
        )
        self.assertAlmostEqual(records.rate_in(path, 1), 150)
        self.assertIsNone(records.rate_in(path, 3))

    def test_ranks_of_a_job_share_a_device_where_they_must(self):
        common = context.Context("/a", "/a/bin", ["/a/lib"], True, 2, "/tmp", None, [])
        self.assertEqual(common.environment()["DDPRUN_CUDA_EMULATOR"], "2")
        self.assertEqual(common.environment(one_device=True)["DDPRUN_CUDA_EMULATOR"], "1")
        self.assertEqual(common.environment()["DDPRUN_CUDA_MODULE"], "/a/bin/libddprun_cuda_emulated.so")
        real = context.Context("/a", "/a/bin", ["/a/lib", "/b"], False, 2, "/tmp", None, [])
        self.assertNotIn("DDPRUN_CUDA_EMULATOR", real.environment())
        self.assertEqual(real.environment()["LD_LIBRARY_PATH"], "/a/lib:/b")
        self.assertNotIn("LD_LIBRARY_PATH", real.clean_environment())


class LibraryTest(unittest.TestCase):
    def setUp(self):
        self.packages = folder_of(self)
        for name in ("cu13/lib/libcudart.so.13", "cudnn/lib/libcudnn.so.9", "cuda_runtime/lib/libcudart.so.12"):
            path = self.packages / "nvidia" / name
            path.parent.mkdir(parents=True)
            path.touch()

    def test_wheels_come_first(self):
        folders = nvidia.candidates([self.packages], {})
        found = nvidia.find(["libcudart.so.13", "libcudnn.so.9"], folders)
        self.assertEqual(found["libcudart.so.13"], self.packages / "nvidia/cu13/lib")
        self.assertEqual(found["libcudnn.so.9"], self.packages / "nvidia/cudnn/lib")
        self.assertEqual(nvidia.missing_text(found, folders), "")
        search = nvidia.search_path(found, folders)
        self.assertEqual(search[0], self.packages / "nvidia/cu13/lib")
        self.assertIn(self.packages / "nvidia/cuda_runtime/lib", search)
        self.assertNotIn(pathlib.Path("/usr/lib/x86_64-linux-gnu"), search)

    def test_what_is_missing_is_one_line_with_the_versions_that_there_are(self):
        folders = [self.packages / "nvidia/cuda_runtime/lib"]
        found = nvidia.find(["libcudart.so.13", "libnccl.so.2"], folders)
        self.assertEqual(
            nvidia.missing_text(found, folders),
            "not found: libcudart.so.13 (there is libcudart.so.12), " f"libnccl.so.2; looked in {folders[0]}",
        )

    def test_only_nvidias_libraries_are_taken_for_theirs(self):
        theirs = ["libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcudnn_ops.so.9", "libnccl.so.2"]
        self.assertTrue(all(map(nvidia.is_nvidias, theirs)))
        self.assertFalse(any(map(nvidia.is_nvidias, ["libddprun_cuda.so", "libc.so.6", "libdnnl.so.2"])))


class FakeDriver:
    """Two devices of one kind."""

    def __init__(self, code=0):
        self.code = code

    def cuInit(self, _):
        return self.code

    def cuDeviceGetCount(self, count):
        count._obj.value = 2

    def cuDriverGetVersion(self, version):
        version._obj.value = 13010

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal

    def cuDeviceGetName(self, name, _, device):
        name.value = f"GPU {device.value}".encode()

    def cuDeviceTotalMem_v2(self, size, _):
        size._obj.value = 80 << 30

    def cuDeviceGetAttribute(self, value, which, _):
        value._obj.value = {75: 9, 76: 0, 16: 132}[which]


class DriverTest(unittest.TestCase):
    def test_facts_are_those_of_all_devices(self):
        facts = driver.facts(FakeDriver)
        self.assertEqual((facts["count"], facts["cuda_of_driver"]), (2, "13.1"))
        self.assertEqual(
            facts["devices"][1],
            {"name": "GPU 1", "bytes": 80 << 30, "compute_capability": "9.0", "multiprocessors": 132},
        )

    def test_without_a_driver_or_a_device_there_is_a_reason(self):
        def load():
            raise OSError("no libcuda")

        self.assertEqual(driver.facts(load), {"count": 0, "reason": "there is no CUDA driver: no libcuda"})
        self.assertEqual(driver.facts(lambda: FakeDriver(100)), {"count": 0, "reason": "cuInit returned 100"})


class LoaderTest(unittest.TestCase):
    @staticmethod
    def program(path):
        """An ELF header, one program header of another kind, one that names the linker, and its name."""
        word = path.encode() + b"\0"
        header = (
            b"\x7fELF\x02\x01\x01".ljust(32, b"\0") + struct.pack("<Q", 64) + b"\0" * 14 + struct.pack("<HH", 56, 2)
        )
        entries = struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 0, 0, 0) + struct.pack(
            "<IIQQQQQQ", 3, 0, 176, 0, 0, len(word), 0, 1
        )
        return header.ljust(64, b"\0") + entries + word + b"rest"

    def test_own_glibc_is_used_where_this_machines_is_older_or_another_library(self):
        self.assertTrue(loader.needs_own("2.36", "2.35"))
        self.assertTrue(loader.needs_own("2.36", "2.9"))
        self.assertTrue(loader.needs_own("2.36", ""))
        self.assertFalse(loader.needs_own("2.36", "2.36"))
        self.assertFalse(loader.needs_own("2.36", "3.0"))

    def test_a_program_is_given_another_linker(self):
        image = self.program("/lib64/ld-linux-x86-64.so.2")
        self.assertEqual(loader.interpreter(image)[2], "/lib64/ld-linux-x86-64.so.2")
        changed = loader.with_interpreter(image, "/tmp/d/ld.so")
        self.assertEqual(loader.interpreter(changed)[2], "/tmp/d/ld.so")
        self.assertEqual(len(changed), len(image))
        self.assertTrue(changed.endswith(b"rest"))

    def test_a_path_that_is_too_long_is_refused(self):
        with self.assertRaisesRegex(ValueError, "longer than the 27 bytes"):
            loader.with_interpreter(self.program("/lib64/ld-linux-x86-64.so.2"), "/" + "x" * 27)

    def test_a_copy_starts_with_its_linker_and_is_removed(self):
        program = pathlib.Path("/bin/true").resolve()
        linker = loader.interpreter(program.read_bytes())[2]
        own = loader.OwnLoader(linker, [program])
        copy = own.folder / program.name
        self.assertEqual(subprocess.run([copy]).returncode, 0)
        (own.folder / "ld.so").unlink()
        with self.assertRaises(FileNotFoundError):  # it did start with that one
            subprocess.run([copy])
        own.remove()
        self.assertFalse(own.folder.exists())


class ProcessTest(unittest.TestCase):
    def test_processes_of_other_sessions_end_too(self):
        processes.adopt_orphans()
        script = "setsid sh -c 'echo $$; exec sleep 1000' & wait"
        shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
        other = int(shell.stdout.readline())
        processes.end_all()
        self.assertRaises(ProcessLookupError, os.kill, other, 0)
        shell.stdout.close()
        shell.wait()

    def test_a_command_that_hangs_is_killed(self):
        folder = folder_of(self)
        os.mkfifo(folder / "never")
        finished = processes.run(["cat", folder / "never"], 0.2, dict(os.environ), folder, folder / "log")
        self.assertTrue(finished.timed_out)
        self.assertEqual(finished.code, -9)
        self.assertFalse(finished.succeeded)
        self.assertEqual(outcomes.how_it_ended(finished, 0.2), "was killed after 0 s")

    def test_what_a_command_leaves_behind_ends_with_it(self):
        folder = folder_of(self)
        processes.adopt_orphans()
        script = "mkfifo f; setsid sh -c 'echo $$ > f; exec sleep 1000' & read other < f; echo $other"
        finished = processes.run(["sh", "-c", script], 60, dict(os.environ), folder, folder / "log")
        self.assertEqual(finished.code, 0)
        self.assertRaises(ProcessLookupError, os.kill, int(finished.out), 0)

    def test_both_outputs_and_the_code_of_a_command_are_known(self):
        folder = folder_of(self)
        finished = processes.run(
            ["sh", "-c", "echo one; echo two >&2; exit 3"], 60, dict(os.environ), folder, folder / "log"
        )
        self.assertEqual((finished.code, finished.out, finished.err, finished.timed_out), (3, "one\n", "two\n", False))


class ResultTest(unittest.TestCase):
    FACTS = {"commit": "abc", "emulated": False, "device": {"devices": [{"name": "H100"}]}}

    def results(self):
        return results.Results(folder_of(self) / "r.json", self.FACTS)

    def read(self, written):
        return json.loads(written.path.read_text())

    def test_the_file_has_each_part_once_it_has_ended(self):
        written = self.results()
        self.assertEqual(self.read(written)["parts"], [])
        written.add(parts.Part("a", 60, None), outcomes.passed(cases=3), 1.234)
        self.assertEqual(
            self.read(written)["parts"],
            [
                {
                    "name": "a",
                    "status": "passed",
                    "seconds": 1.23,
                    "limit": 60,
                    "reason": "",
                    "facts": {"cases": 3},
                    "tail": [],
                }
            ],
        )
        self.assertFalse(self.read(written)["complete"])
        self.assertEqual(results.exit_code(self.read(written)), 1)
        written.finish(2)
        self.assertEqual(results.exit_code(self.read(written)), 0)

    def test_one_failure_fails_the_run_and_nothing_but_skipped_parts_too(self):
        for outcomes_of_parts, code in (
            ([outcomes.passed(), outcomes.failed("x")], 1),
            ([outcomes.skipped("x")], 1),
            ([outcomes.passed(), outcomes.skipped("x")], 0),
        ):
            written = self.results()
            for i, outcome in enumerate(outcomes_of_parts):
                written.add(parts.Part(str(i), 60, None), outcome, 1)
            written.finish(1)
            self.assertEqual(results.exit_code(self.read(written)), code)

    def test_the_table_has_figures_reasons_and_the_ratio_to_pytorch(self):
        written = self.results()
        written.add(parts.Part("GPT-2", 60, None), outcomes.passed(tokens_per_s=300000.0), 1)
        written.add(parts.Part("GPT-2, in PyTorch", 60, None), outcomes.passed(tokens_per_s=400000.0), 2)
        written.add(parts.Part("kernels", 60, None), outcomes.failed("exit code 1", "line 1\nline 2"), 3)
        written.finish(6)
        shown = subprocess.run([TREE / "scripts/test-gpu", written.path], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 1)
        self.assertEqual(
            shown.stdout.splitlines(),
            [
                "ddprun abc on H100",
                "passed      1.0 s  GPT-2              300,000 tokens/s",
                "passed      2.0 s  GPT-2, in PyTorch  400,000 tokens/s",
                "failed      3.0 s  kernels            exit code 1",
                "GPT-2: 0.75 x PyTorch",
                "2 passed, 1 failed, 0 skipped",
            ],
        )

    def test_the_last_lines_of_a_failure_are_kept(self):
        tail = outcomes.failed("x", "\n".join(map(str, range(100)))).tail
        self.assertEqual((len(tail), tail[-1]), (outcomes.TAIL_LINES, "99"))


if __name__ == "__main__":
    unittest.main()
