// A front end's adapter for Hermes, written from its public description alone: what it sends, how it reads events,
// history and errors, how it resumes. It pairs tools first in, first out by name, and drops no duplicates.

const ENDS = {
  "run.completed": "completed",
  "run.failed": "failed",
  "run.cancelled": "interrupted",
  "run.interrupted": "interrupted",
};

export class AdapterError extends Error {
  constructor(code, message, { status = 0, retryable = false } = {}) {
    super(`${code}: ${message}`);
    Object.assign(this, { code, status, retryable });
  }
}

// The functions of the description's fullest example, below a base address.
export function exampleFunctions(base, headers = {}) {
  const send = (method, path, body) =>
    fetch(`${base}${path}`, {
      method,
      credentials: "include",
      headers: { "Content-Type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const session = (sessionId) => `/api/sessions/${encodeURIComponent(sessionId)}`;
  const run = (runId) => `/v1/runs/${encodeURIComponent(runId)}`;
  const replace = ({ sessionId, targetRunId, body }) =>
    send("POST", `${session(sessionId)}/chat/stream`, { ...body, replace_from: targetRunId });
  return {
    run: async ({ sessionId, body }) => {
      const once = () => send("POST", `${session(sessionId)}/chat/stream`, body);
      const response = await once();
      if (response.status !== 404) return response;
      await send("POST", "/api/sessions", { id: sessionId });
      return once();
    },
    abort: ({ runId }) => send("POST", `${run(runId)}/stop`, {}),
    steer: ({ runId, body }) => send("POST", `${run(runId)}/steer`, body),
    history: ({ sessionId }) => send("GET", `${session(sessionId)}/messages?order=latest&limit=500`),
    resume: ({ runId, eventId }) => send("GET", `${run(runId)}/events?after=${encodeURIComponent(eventId)}`),
    regenerate: replace,
    edit: replace,
  };
}

// One turn as the screen shows it. `text` and `tools` may be what history had of it already.
export class Turn {
  constructor({ runId = null, eventId = null, text = "", tools = [] } = {}) {
    Object.assign(this, { runId, eventId, text, tools, thinking: "", status: "unknown", error: null });
    this.queued = false;
    this.leftOver = null; // remarks that came to nothing
    this.ended = false; // read to `done` or the end of the stream
    this.listeners = [];
  }

  // Resolves when `test(turn)` is true; looked at after every event.
  until(test) {
    if (test(this)) return Promise.resolve(this);
    return new Promise((resolve, reject) => this.listeners.push({ test, resolve, reject }));
  }

  take(id, name, data) {
    if (id !== null) this.eventId = id;
    if (data.run_id) this.runId = data.run_id;
    if (name === "assistant.delta") this.text += data.delta;
    else if (name === "tool.progress" && data.tool_name === "_thinking") this.thinking += data.delta;
    else if (name === "tool.started")
      this.tools.push({ name: data.tool_name, input: data.args ?? data.preview, result: null, status: "running" });
    else if (name === "tool.completed" || name === "tool.failed") {
      const first = this.tools.find((tool) => tool.name === data.tool_name && tool.status === "running");
      if (first) Object.assign(first, { result: data.preview, status: name.slice(5) });
    } else if (name === "run.queued") this.queued = true;
    else if (name === "error") this.conclude("failed", data.code ?? "HERMES_ERROR");
    else if (name in ENDS) {
      this.leftOver = data.pending_steer ?? null;
      this.conclude(ENDS[name], name === "run.failed" ? (data.code ?? "RUN_FAILED") : null);
    }
  }

  conclude(status, error) {
    this.status = status;
    this.error = error;
  }

  look(over = false) {
    this.listeners = this.listeners.filter(({ test, resolve, reject }) => {
      if (test(this)) resolve(this);
      else if (over) reject(new Error(`the stream ended first: ${JSON.stringify(this)}`));
      else return true;
      return false;
    });
  }
}

async function checked(response) {
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // no body to read: the status has to do
  }
  const { status } = response;
  throw new AdapterError(error.code ?? error.type ?? `HTTP_${status}`, error.message ?? "", {
    status,
    retryable: [408, 409, 429].includes(status) || status >= 500,
  });
}

// Read an event stream into a turn, up to `done` or its end; `cut` breaks the line.
async function read(response, turn, cut) {
  const reader = response.body.getReader();
  cut?.addEventListener("abort", () => reader.cancel().catch(() => {}));
  const decoder = new TextDecoder();
  let waiting = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      waiting += decoder.decode(value, { stream: true });
      let end;
      while ((end = waiting.indexOf("\n\n")) >= 0) {
        if (cut?.aborted) return;
        const block = waiting.slice(0, end);
        waiting = waiting.slice(end + 2);
        let id = null, name = "message", data = null;
        for (const line of block.split("\n")) {
          if (line.startsWith("id: ")) id = line.slice(4);
          else if (line.startsWith("event: ")) name = line.slice(7);
          else if (line.startsWith("data: ")) data = JSON.parse(line.slice(6));
        }
        if (data === null) continue;
        turn.take(id, name, data);
        turn.look();
        if (name === "done") return;
      }
    }
  } finally {
    turn.ended = true;
    turn.look(true);
  }
}

function encode({ text, attachments = [] }, instructions) {
  for (const { type } of attachments)
    if (!type.startsWith("image/")) throw new AdapterError("UNSUPPORTED_ATTACHMENT", type);
  const input = attachments.length
    ? [{ type: "text", text }, ...attachments.map(({ url }) => ({ type: "image_url", image_url: { url } }))]
    : text;
  return instructions === undefined ? { input } : { input, instructions };
}

export function createAdapter(functions, { instructions } = {}) {
  async function follow(asked, turn = new Turn(), cut = undefined) {
    turn.reading = checked(await asked).then((response) => read(response, turn, cut));
    turn.reading.catch(() => {});
    return turn;
  }
  return {
    run: async (sessionId, input, cut) =>
      follow(functions.run({ sessionId, body: encode(input, instructions) }), new Turn(), cut),
    regenerate: async (sessionId, targetRunId, input) =>
      follow(functions.regenerate({ sessionId, targetRunId, body: encode(input, instructions) })),
    edit: async (sessionId, targetRunId, input) =>
      follow(functions.edit({ sessionId, targetRunId, body: encode(input, instructions) })),
    resume: async (sessionId, turn) =>
      follow(functions.resume({ sessionId, runId: turn.runId, eventId: turn.eventId }), turn),
    abort: async (sessionId, turn) => void (await checked(await functions.abort({ sessionId, runId: turn.runId }))),
    // true: taken; false: this turn takes none any more
    steer: async (sessionId, turn, text) => {
      const response = await functions.steer({ sessionId, runId: turn.runId, body: { input: text } });
      if (response.status === 409) return false;
      await checked(response);
      return true;
    },
    history: async (sessionId) => {
      let page;
      try {
        page = await (await checked(await functions.history({ sessionId }))).json();
      } catch (error) {
        if (error.code === "session_not_found") return [];
        throw error;
      }
      return turnsOf(page);
    },
  };
}

// The turns of a page of history: what was asked, what was answered, how each stands.
function turnsOf({ data, runs = [] }) {
  const turns = new Map();
  for (const row of data) {
    if (!turns.has(row.run_id)) turns.set(row.run_id, Object.assign(new Turn({ runId: row.run_id }), { asked: null }));
    const turn = turns.get(row.run_id);
    if (row.role === "user") turn.asked = row.content;
    else if (row.role === "assistant") {
      turn.text += row.content;
      turn.thinking += row.reasoning ?? "";
      for (const call of row.tool_calls ?? [])
        turn.tools.push({
          name: call.function.name, input: JSON.parse(call.function.arguments), result: null, status: "running", id: call.id,
        });
    } else {
      const call = turn.tools.find((tool) => tool.id === row.tool_call_id);
      Object.assign(call, { result: row.content, status: "completed" });
    }
  }
  for (const run of runs) {
    const turn = turns.get(run.run_id);
    if (turn) Object.assign(turn, { status: run.status, eventId: run.last_event_id, error: run.error?.code ?? null });
  }
  return [...turns.values()];
}
