import { expect, test } from "vitest";
import { findFigures, findFiguresInText } from "./comments.ts";

test("findFigures: finds a figure of speech in a comment of each language and in no code", () => {
  expect(findFigures("a.ts", "/** For whoever asks. */")).toHaveLength(1);
  expect(findFigures("a.go", `x := 1 ${"//"} until it is told to stop`)).toHaveLength(1);
  expect(findFigures("a.py", "# sent by an enemy")).toHaveLength(1);
  expect(findFigures("a.ts", 'const text = "whoever";\n// Two kinds are told apart by their path.')).toEqual([]);
});

test("findFiguresInText: finds a figure of speech in any line of a document, over its end, and names the line", () => {
  expect(findFiguresInText("a.md", "# Title\n\n| For whoever asks | x |\nThe node is\ntold to stop.")).toEqual([
    'a.md:3 says "whoever"',
    'a.md:4 says "is told"',
  ]);
  expect(findFiguresInText("a.md", "Whoever asks waits without a word.")).toHaveLength(2);
});

test("findFiguresInText: a comparison is no figure of speech, nor is the list of them in STYLE.md", () => {
  expect(findFiguresInText("a.md", "Two kinds are told apart by their path, and one is told\nfrom the other.")).toEqual(
    [],
  );
  const list = 'no figures of speech ("whoever",\n"an enemy": tidy refuses them): name the mechanism';
  expect(findFiguresInText("STYLE.md", list)).toEqual([]);
  expect(findFiguresInText("STYLE.md", `${list}\nto whoever reads`)).toEqual(['STYLE.md:3 says "whoever"']);
});
