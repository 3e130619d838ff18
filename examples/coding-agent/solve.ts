/** One call of a tool: `subject` is the path or the command, `content` what a file is to hold. */
export interface ToolCall {
  readonly tool: string;
  readonly subject: string;
  readonly content?: string;
}

/** What the model wants next: a tool's result, or to be finished. */
export type Turn =
  | { readonly kind: "call"; readonly call: ToolCall }
  | { readonly kind: "done"; readonly answer: string };

/** One call and what came of it. */
export interface Step {
  readonly call: ToolCall;
  readonly result: string;
}

/** A language model, as far as the loop is concerned. */
export interface Model {
  next(task: string, steps: readonly Step[]): Promise<Turn>;
}

/** Does one thing in the sandbox and says in words what came of it; it never throws for what the model got wrong. */
export type Tool = (call: ToolCall) => Promise<string>;

/** What the loop needs. */
export interface SolveOptions {
  readonly model: Model;
  readonly tools: Readonly<Record<string, Tool>>;
  readonly task: string;
  /** A model that goes round in circles must end, too. */
  readonly turnsMax: number;
  readonly onStep?: (step: Step) => void;
}

/** Lets the model call tools until it says that it is done; returns its answer. */
export async function solve({ model, tools, task, turnsMax, onStep }: SolveOptions): Promise<string> {
  const steps: Step[] = [];
  for (let turn = 0; turn < turnsMax; turn++) {
    const wish = await model.next(task, steps);
    if (wish.kind === "done") return wish.answer;
    const tool = tools[wish.call.tool];
    const result = tool === undefined ? `there is no tool ${wish.call.tool}` : await tool(wish.call);
    const step = { call: wish.call, result };
    steps.push(step);
    onStep?.(step);
  }
  throw new Error(`not done after ${turnsMax} turns`);
}
