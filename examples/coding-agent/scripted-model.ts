import type { Model, Step, ToolCall, Turn } from "./solve.ts";

const tests = `import unittest
from slug import slug

class SlugTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_punctuation(self):
        self.assertEqual(slug("  What's new, Doc? "), "what-s-new-doc")

unittest.main()
`;
const firstAttempt = `def slug(title):
    return title.lower().replace(" ", "-")
`;
const secondAttempt = `import re

def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
`;

/** Stands for a language model: no network, no key, the same every time. It decides by what it is shown. */
export class ScriptedModel implements Model {
  next(_task: string, steps: readonly Step[]): Promise<Turn> {
    return Promise.resolve(decide(steps));
  }
}

function decide(steps: readonly Step[]): Turn {
  const last = steps.at(-1);
  if (last === undefined) return call({ tool: "write_file", subject: "/workspace/slug.py", content: firstAttempt });
  if (last.call.tool === "write_file" && !steps.some(({ call: { subject } }) => subject.endsWith("test_slug.py")))
    return call({ tool: "write_file", subject: "/workspace/test_slug.py", content: tests });
  if (last.call.tool === "write_file") return call({ tool: "run", subject: "python3 test_slug.py" });
  if (last.result.endsWith("exit code 0")) return { kind: "done", answer: "slug.py is written and its tests pass" };
  const isMended = steps.some(({ call: { content } }) => content === secondAttempt);
  if (isMended) return { kind: "done", answer: "I could not make the tests pass" };
  return call({ tool: "write_file", subject: "/workspace/slug.py", content: secondAttempt });
}

function call(wish: ToolCall): Turn {
  return { kind: "call", call: wish };
}
