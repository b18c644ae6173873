"""chat.py PROGRAM MODEL: drives `isthmus chat` on a terminal and prints "N passed, N failed"."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from pty_session import Pty  # noqa: E402

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
SCRATCH = pathlib.Path(tempfile.mkdtemp())
ENV = {"TERM": "xterm-256color", "HOME": str(SCRATCH), "ISTHMUS_MODELS": str(SCRATCH / "models")}
PROMPT = "> \x1b?"  # what stands at the begin of an empty input line
UP, HOME = "\x1b[A", "\x1b[H"
LONG = "Write a very long story about a lighthouse, with many chapters."


class Chat(Pty):
    """A chat that has shown its first prompt."""

    def __init__(self, *options, env=None, **size):
        super().__init__([PROGRAM, "chat", MODEL, "--greedy", *options], {**ENV, **(env or {})}, **size)
        self.expect("/help lists the commands")
        self.prompt()

    def prompt(self, seconds=60):
        self.expect(r"(^|\n)(\x1b\[[?0-9;]*[a-zA-Z]|\r)*> ", seconds)

    def ask(self, text):
        """Types a message; returns what was shown up to the next prompt."""
        start = self.at
        self.line(text)
        self.prompt()
        return self.seen[start:self.at].decode(errors="replace")

    def leave(self):
        self.send("\x04")
        assert self.wait() == 0, self.status
        assert self.modes() == (True, True), "the terminal stays without echo or line mode"


def saved(chat, name):
    """The messages, through /save."""
    path = SCRATCH / name
    chat.line(f"/save {path}")
    chat.expect(r"\[saved in")
    chat.prompt()
    return json.loads(path.read_text())


def test_answers_stream_and_the_history_stays_between_turns():
    chat = Chat("-n", "24")
    shown = chat.ask("What is the capital of France?")
    assert "Paris" in shown, shown
    assert "[cut: --max-tokens 24]" in chat.ask("Tell me a long story.")
    chat.ask("And of Italy?")
    chat.send(UP + UP + UP)
    chat.expect("What is the capital of France")
    chat.send("\r")
    chat.prompt()
    messages = saved(chat, "turns.json")
    questions = [message["content"] for message in messages if message["role"] == "user"]
    assert questions[-1] == questions[0] == "What is the capital of France?" and len(questions) == 4, questions
    chat.leave()


def test_control_c_stops_the_answer_and_not_the_program():
    chat = Chat()
    chat.line(LONG)
    chat.expect(r"\n.{40}")
    chat.send("\x03")
    chat.expect(r"\[stopped\]", 10)
    chat.prompt()
    chat.line(LONG)
    chat.expect(r"\n.{40}")
    chat.send("\x03")
    chat.expect(r"\[stopped\]", 10)
    chat.prompt()
    chat.ask("/undo")
    messages = saved(chat, "stopped.json")
    assert [message["role"] for message in messages] == ["user", "assistant"], messages
    chat.leave()


def test_control_c_at_the_prompt_drops_what_is_typed():
    chat = Chat("-n", "4")
    chat.send("\x03")
    chat.expect("Ctrl-D or /exit leaves")
    chat.prompt()
    chat.send("not to be sent")
    chat.expect("not to be sent")
    chat.send("\x03")
    chat.prompt()
    chat.line('"""')
    chat.expect("… ")
    chat.send("half a message\r")
    chat.expect("… ")
    chat.send("\x03")
    chat.prompt()
    assert saved(chat, "nothing.json") == []
    chat.leave()


def test_messages_of_several_lines():
    chat = Chat("-n", "4")
    chat.send('"""\rfirst\r\rthird\r"""\r')
    chat.prompt()
    chat.send("one \\\rtwo\r")
    chat.prompt()
    chat.send("\x1b[200~pasted\rin one\rpiece\r\x1b[201~")
    chat.expect("piece")
    chat.send(" go\r")
    chat.prompt()
    questions = [message["content"] for message in saved(chat, "lines.json") if message["role"] == "user"]
    assert questions == ["first\n\nthird", "one \ntwo", "pasted\nin one\npiece go"], questions
    chat.send(UP + UP + "\r")  # over /save: a message of several lines comes back whole
    chat.prompt()
    questions = [message["content"] for message in saved(chat, "again.json") if message["role"] == "user"]
    assert questions[-1] == "pasted\nin one\npiece go", questions
    chat.leave()


def test_editing_knows_wide_characters():
    chat = Chat("-n", "4", env={"LANG": "C", "LC_ALL": "C"})
    chat.send("日本語🎉é")
    chat.expect("日本語🎉é")
    chat.send("\x7f\x7f!" + HOME + "«\r")
    chat.prompt()
    question = saved(chat, "wide.json")[0]["content"]
    assert question == "«日本語!", question
    chat.leave()


def test_a_line_longer_than_the_screen_and_a_window_that_changes():
    chat = Chat("-n", "4", rows=10, columns=40)
    text = " ".join(f"word{i}" for i in range(300))
    chat.send(text[:1000])
    chat.resize(30, 100)
    os.kill(chat.pid, signal.SIGWINCH)
    chat.send(text[1000:] + "\r")
    chat.prompt()
    question = saved(chat, "long.json")[0]["content"]
    assert question == text, question
    chat.leave()


def test_every_command():
    chat = Chat("-n", "8", "--system", "You are brief.")
    for word in ("/clear", "/system", "/undo", "/retry", "/figures", "/save", "/exit"):
        assert word in chat.ask("/help")
    assert "nothing to take back" in chat.ask("/undo")
    assert "nothing to ask again" in chat.ask("/retry")
    chat.ask("Name a colour.")
    first = saved(chat, "one.json")
    assert [message["role"] for message in first] == ["system", "user", "assistant"]
    chat.ask("/retry")
    assert saved(chat, "two.json") == first, "greedy answers are the same again"
    assert re.search(r"\[\d+ \+ \d+ tokens.*context \d+ of 4096\]", chat.ask("/figures") + chat.ask("Another."))
    chat.ask("/undo")
    assert saved(chat, "three.json") == first
    assert "exists already" in chat.ask(f"/save {SCRATCH}/three.json")
    assert "/save needs a file name" in chat.ask("/save")
    assert "did you mean '/clear'" in chat.ask("/claer")
    assert "takes nothing" in chat.ask("/clear all")
    chat.ask("/system Speak like a pirate.")
    assert saved(chat, "four.json") == [{"role": "system", "content": "Speak like a pirate."}]
    chat.ask("//etc is a folder.")
    assert saved(chat, "five.json")[1]["content"] == "/etc is a folder."
    chat.ask("/clear")
    assert len(saved(chat, "six.json")) == 1
    chat.line("/exit")
    assert chat.wait() == 0


def test_a_full_context_says_what_to_do():
    chat = Chat("--ctx", "160")
    shown = chat.ask(LONG)
    assert re.search(r"context of 160 tokens is full.*/clear.*--ctx N.*8192.*--shift", shown, re.DOTALL), shown
    shown = chat.ask("Go on.")
    assert re.search(r"the conversation has come to \d+ tokens, the context holds 160: /undo or /clear", shown), shown
    shown = chat.ask("word " * 300)
    assert "the context holds 160" in shown, shown
    chat.ask("/clear")
    shown = chat.ask("word " * 300)
    assert re.search(r"this message comes to \d+ tokens.*write a shorter one", shown), shown
    assert "Paris" in chat.ask("What is the capital of France?")
    chat.leave()


def test_shift_leaves_out_the_oldest_turns():
    chat = Chat("--ctx", "200", "--shift", "-n", "60", "--system", "You know France.")
    for _ in range(4):
        shown = chat.ask("What is the capital of France? Tell me about it.")
    assert "oldest turns were left out" in shown, shown
    messages = saved(chat, "shifted.json")
    assert messages[0] == {"role": "system", "content": "You know France."}, messages[0]
    assert messages[1]["role"] == "user" and len(messages) < 9, messages
    chat.leave()


def test_the_terminal_is_as_it_was_after_sigterm():
    for busy in (False, True):
        chat = Chat()
        if busy:
            chat.line(LONG)
            chat.expect(r"\n.{40}")
        else:
            chat.send("half a")
            chat.expect("half a")
        chat.signal(signal.SIGTERM)
        assert chat.wait() == 130, chat.status
        assert chat.modes() == (True, True)
        assert chat.seen.count(b"\x1b[?2004h") == chat.seen.count(b"\x1b[?2004l"), "marking of pastes stays on"


def test_a_stopped_chat_goes_on_where_it_was():
    shell = Pty(["bash", "--norc", "--noprofile", "-i"], {**ENV, "PS1": "ready$ "})
    shell.expect(r"ready\$ ")
    shell.line(f"'{PROGRAM}' chat '{MODEL}' --greedy -n 4")
    shell.expect("/help lists the commands")
    shell.expect("> ")
    shell.send("half a")
    shell.expect("half a")
    shell.send("\x1a")
    shell.expect(r"Stopped.*ready\$ ")
    shell.line("fg")
    shell.expect("> half a")
    shell.send(" question" + HOME + "«\r")
    shell.expect("> ")
    path = SCRATCH / "resumed.json"
    shell.line(f"/save {path}")
    shell.expect(r"\[saved in")
    assert json.loads(path.read_text())[0]["content"] == "«half a question"
    shell.send("\x04")
    shell.expect(r"ready\$ ")
    shell.line("exit")
    shell.wait()


def test_what_is_typed_ahead_is_not_lost():
    chat = Chat("-n", "4")
    chat.send("Say hi.\rAnd again.\r")
    chat.prompt()
    chat.prompt()
    questions = [message["content"] for message in saved(chat, "ahead.json") if message["role"] == "user"]
    assert questions == ["Say hi.", "And again."], questions
    chat.leave()


def test_a_dumb_terminal_gets_no_codes():
    for kind in ("dumb", "no-such-terminal", ""):
        chat = Chat("-n", "8", env={"TERM": kind, "NO_COLOR": "1"})
        shown = chat.ask("Say hi.")
        chat.leave()
        if kind == "dumb":
            assert "\x1b" not in shown, shown


def test_output_that_is_no_terminal_has_only_answers():
    out = SCRATCH / "out"
    command = f"exec '{PROGRAM}' chat '{MODEL}' --greedy --figures -n 24 >'{out}'"
    chat = Pty(["/bin/sh", "-c", command], ENV)
    chat.expect("/help lists the commands")
    chat.expect("> ")
    chat.line("What is the capital of France?")
    chat.expect("tokens/s")
    chat.send("\x04")
    assert chat.wait() == 0
    text = out.read_text()
    assert "Paris" in text and "> " not in text and "tokens/s" not in text and "\x1b" not in text, text


def test_run_at_a_terminal():
    run = Pty([PROGRAM, "run", MODEL, "-n", "4", "--greedy"], ENV)
    run.expect("Type the prompt; Ctrl-D")
    run.line("What is the capital of France?")
    run.send("\x04")
    run.expect("The capital of")
    run.expect(r"\[length; ")
    assert run.wait() == 0
    run = Pty([PROGRAM, "run", MODEL], ENV)
    run.expect("Type the prompt; Ctrl-D")
    run.send("\x03")
    assert run.wait() == 130
    run = Pty([PROGRAM, "run", MODEL, LONG], ENV)
    run.expect(r"\x1b\[K[A-Z].{60}")
    run.send("\x03")
    run.expect(r"\[cancelled; ")
    assert run.wait() == 130


def test_make_run_with_and_without_a_terminal():
    run = [str(pathlib.Path(__file__).resolve().parents[3] / "tools/run"), PROGRAM]
    pull = [PROGRAM, "pull", MODEL, "--name", "smollm2:135m", "--quiet"]
    subprocess.run(pull, check=True, env={**os.environ, **ENV}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    chat = Pty(run, ENV)
    chat.expect("/help lists the commands")
    chat.line("/exit")
    assert chat.wait() == 0
    piped = subprocess.run(run, check=True, env={**os.environ, **ENV}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, timeout=300)
    assert re.match(r"> .*\?\n.*isthmus", piped.stdout), piped.stdout


def main():
    passed, failed = 0, 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or not (len(sys.argv) < 4 or sys.argv[3] in name):
            continue
        try:
            test()
            passed += 1
        except Exception:  # noqa: BLE001: each test reports and the next one runs
            failed += 1
            print(f"FAILED: {name}")
            traceback.print_exc(limit=-3, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
