"""The commands of docs/first-hour.md, with the bundled model."""
import os
import re
import socket
import subprocess

from support import FASA, SOURCE, CommandTest, main


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class FirstHour(CommandTest):
    def test_the_page(self):
        page = (SOURCE / "docs/first-hour.md").read_text()
        commands = "\n".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
        self.assertGreaterEqual(commands.count("fasa "), 8)
        model = self.copy_model()
        (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}\n"
                                                   "{% endfor %}")
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "fasa").symlink_to(FASA)
        script = "set -e\n" + commands.replace("8080", free_port()).replace("40s", "10s")
        environment = {**os.environ, "MODEL": str(model),
                       "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        text = done.stdout.decode()
        self.assertEqual(done.returncode, 0, text[-2000:] + done.stderr.decode()[-2000:])
        for part in ("right answers", "KV bytes on the device", "--config plan.toml", "ms a token:",
                     "Written to tuned.toml", '"text_completion"'):
            self.assertIn(part, text)
        # plan's row, profile's verdicts and tune's first trial.
        planned = re.search(r"^\* default  .*? ([\d.]+)  +[\d.]+$", text, re.MULTILINE)[1]
        said = [planned, *re.findall(r"^([\d.]+) ms a token:", text, re.MULTILINE),
                re.search(r"Depth auto ([\d.]+) ms", text)[1]]
        self.assertEqual(len(said), 4)
        for one in map(float, said):
            self.assertLess(abs(one / float(planned) - 1), 0.01, said)
        self.assertTrue((self.folder / "profile.html").exists())


if __name__ == "__main__":
    main()
