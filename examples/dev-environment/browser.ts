/** What a browser does with a link: trades its token for a cookie, then loads pages and opens WebSockets with that. */
export class Browser {
  readonly #page: URL;
  readonly #cookie: string;

  private constructor(page: URL, cookie: string) {
    this.#page = page;
    this.#cookie = cookie;
  }

  /** Opens a link; the router answers with a cookie and the address of the page itself. */
  static async open(link: URL): Promise<Browser> {
    const answer = await fetch(link, { redirect: "manual", headers: { "sec-fetch-site": "none" } });
    const location = answer.headers.get("location");
    const [cookie] = answer.headers.getSetCookie();
    if (location === null || cookie === undefined) throw new Error(`no page behind ${link.href}: ${answer.status}`);
    return new Browser(new URL(location, link), cookie.split(";")[0] ?? "");
  }

  /** The page's text. */
  async load(): Promise<string> {
    const answer = await fetch(this.#page, { headers: { cookie: this.#cookie } });
    if (!answer.ok) throw new Error(`the page answers ${answer.status}: ${await answer.text()}`);
    return answer.text();
  }

  /** The messages of a WebSocket beside the page, as they come. */
  async *messages(path: string): AsyncGenerator<string> {
    const url = new URL(path, this.#page);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, { headers: { cookie: this.#cookie } } as unknown as string[]);
    // A page gets a handful of messages: the list is bounded by the life of this generator.
    const waiting: string[] = [];
    let wake = (): void => undefined;
    socket.addEventListener("message", ({ data }) => {
      waiting.push(String(data));
      wake();
    });
    socket.addEventListener("close", () => wake());
    try {
      while (socket.readyState <= WebSocket.OPEN) {
        const message = waiting.shift();
        if (message !== undefined) yield message;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      socket.close();
    }
  }
}
