"""README shows the example files as they are, and they run."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


class Readme(unittest.TestCase):
    def run_example(self, *command):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TILEWRIGHT_CACHE_DIR": folder}
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_shows_the_examples(self):
        for language, file in (("cpp", "attention.cpp"), ("python", "attention.py")):
            self.assertEqual(blocks(language), [(ROOT / "examples" / file).read_text(encoding="utf-8")])

    def test_python_example_runs(self):
        out = self.run_example(sys.executable, "examples/attention.py")
        self.assertIn("(1, 100, 8, 64) float16 (1, 8, 100) float32", out)

    def test_cpp_example_runs(self):
        # All values are 1, so the average of the values is 1: 0x3c00 in fp16.
        out = self.run_example(os.environ["TILEWRIGHT_EXAMPLE"])
        self.assertIn("the last element is 0x3c00", out)

    def test_links_lead_somewhere(self):
        for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "bench" / "README.md"):
            prose = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
            for link in re.findall(r"\]\((?!http)([^)#]+)", prose):
                self.assertTrue((document.parent / link).exists(), f"{document.name} links to {link}")

    def test_specs_it_names_exist(self):
        for spec in re.findall(r"specs/[\w.-]+\.yaml", README):
            self.assertTrue((ROOT / spec).exists(), spec)


if __name__ == "__main__":
    unittest.main()
