import { type ImportsOf, isTestCode } from "./imports.ts";

/** Who imports whom among the parts of one folder. */
type Graph = Map<string, Set<string>>;

/**
 * Every knot among the parts of a folder, as `folder: part part ...`. The parts are the folder's own files and its
 * subfolders as wholes, so a file may import a subfolder beside it, and a subfolder that file, but not both. Two files that
 * import each other are a knot in the folder that holds both, however deep each of them lies. Types count as imports.
 */
export function findCycles(files: readonly string[], importsOf: ImportsOf): string[] {
  const known = new Set(files.filter((file) => !isTestCode(file)));
  const graphs = new Map<string, Graph>();
  for (const file of known) {
    for (const target of importsOf(file)) if (known.has(target) && target !== file) addArrow(graphs, file, target);
  }
  return [...graphs].flatMap(([folder, graph]) => knotsOf(graph).map((knot) => `${folder}: ${knot.join(" ")}`)).sort();
}

/** Draws the arrow in the nearest folder that holds both files. */
function addArrow(graphs: Map<string, Graph>, file: string, target: string): void {
  const [from, to] = [file.split("/"), target.split("/")];
  const depth = from.findIndex((part, index) => part !== to[index]);
  const folder = from.slice(0, depth).join("/");
  const graph = graphs.get(folder) ?? new Map<string, Set<string>>();
  graphs.set(folder, graph);
  const arrows = graph.get(from[depth] ?? "") ?? new Set();
  graph.set(from[depth] ?? "", arrows.add(to[depth] ?? ""));
}

/** The sets of parts that reach each other. */
function knotsOf(graph: Graph): string[][] {
  const reached = new Map([...graph.keys()].map((part) => [part, reachedFrom(graph, part)]));
  const reaches = (from: string, to: string): boolean => reached.get(from)?.has(to) === true;
  const knots = new Map<string, string[]>();
  for (const part of [...graph.keys()].sort()) {
    if (!reaches(part, part)) continue;
    const knot = [...graph.keys()].filter((other) => reaches(part, other) && reaches(other, part)).sort();
    knots.set(knot.join(" "), knot);
  }
  return [...knots.values()];
}

function reachedFrom(graph: Graph, start: string): Set<string> {
  const reached = new Set<string>();
  const open = [start];
  for (let part = open.pop(); part !== undefined; part = open.pop()) {
    for (const next of graph.get(part) ?? []) {
      if (reached.has(next)) continue;
      reached.add(next);
      open.push(next);
    }
  }
  return reached;
}
