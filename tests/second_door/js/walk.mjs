// A walk through every capability of the adapter. Returns what it has done; throws at the first thing that is wrong.
import { AdapterError, Turn, createAdapter, exampleFunctions } from "./adapter.mjs";

const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const words = (length) => Array.from({ length }, (_, number) => `w${number}`).join(" ");
const ENDLESS = words(400); // to be stopped
const LONG = words(20);

function same(found, wanted, what) {
  const [left, right] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (left !== right) throw new Error(`${what}: ${left} is not ${right}`);
}

async function refusal(work) {
  try {
    await work();
  } catch (error) {
    if (error instanceof AdapterError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

async function finished(turn) {
  await turn.reading;
  return turn;
}

export async function walk({ base, headers, tools }) {
  const adapter = createAdapter(exampleFunctions(base, headers));
  const session = `walk ${crypto.randomUUID()}/é`;
  const done = [];

  same(await adapter.history(session), [], "history of a session that is not there");

  const first = await finished(await adapter.run(session, { text: "one two three" }));
  same([first.text, first.status, first.error], ["one two three", "completed", null], "run");
  done.push("run");

  const long = await adapter.run(session, { text: ENDLESS });
  await long.until((turn) => turn.text !== "");
  const busy = await refusal(async () => finished(await adapter.run(session, { text: "too soon" })));
  same([busy.code, busy.retryable], ["run_already_active", true], "a second run at once");
  await adapter.abort(session, long);
  await finished(long);
  same(long.status, "interrupted", "abort");
  if (!ENDLESS.startsWith(long.text.trim()) || long.text === ENDLESS) throw new Error(`abort: ${long.text}`);
  await adapter.abort(session, long); // again: no harm
  same(await adapter.steer(session, long, "too late"), false, "steer after the end");
  done.push("abort");

  const steered = await adapter.run(session, { text: LONG });
  await steered.until((turn) => turn.text !== "");
  same(await adapter.steer(session, steered, "and this"), true, "steer");
  await finished(steered);
  same([steered.text, steered.status], [`${LONG} and this`, "completed"], "the steered text");
  done.push("steer");

  const line = new AbortController();
  const cut = await adapter.run(session, { text: LONG }, line.signal);
  await cut.until((turn) => turn.text.includes("w3"));
  line.abort();
  await finished(cut);
  same(cut.status, "unknown", "a cut line says nothing of the run");
  const reloaded = (await adapter.history(session)).at(-1);
  same(reloaded.runId, cut.runId, "history has the running turn");
  await finished(await adapter.resume(session, cut));
  same([cut.text, cut.status], [LONG, "completed"], "resume");
  if (reloaded.status === "running") {
    await finished(await adapter.resume(session, reloaded));
    same(reloaded.text, LONG, "history and the rest by resume");
  }
  done.push("resume");

  const pictured = await finished(
    await adapter.run(session, { text: "look", attachments: [{ type: "image/png", url: PIXEL }] }),
  );
  same(pictured.status, "completed", "an image");
  const refused = await refusal(() => adapter.run(session, { text: "x", attachments: [{ type: "text/plain", url: "" }] }));
  same(refused.code, "UNSUPPORTED_ATTACHMENT", "an attachment that is no image");

  let turns = await adapter.history(session);
  same(turns.map((turn) => turn.runId), [first, long, steered, cut, pictured].map((turn) => turn.runId), "runs of history");
  same(turns.slice(0, 4).map((turn) => turn.text), [first, long, steered, cut].map((turn) => turn.text), "texts of history");
  same(turns.map((turn) => turn.status), ["completed", "cancelled", "completed", "completed", "completed"], "how they stand");
  same(turns[0].asked, "one two three", "what was asked");
  same(turns[0].eventId, first.eventId, "the number of the end");
  same(turns[4].asked[1].image_url.url.split("/").at(-2), "media", "an image in history");
  done.push("history");

  if (tools) {
    const used = await finished(await adapter.run(session, { text: "tools" }));
    const shown = used.tools.map((tool) => [tool.name, tool.input, tool.result, tool.status]);
    same(
      shown,
      [
        ["read", { path: "a" }, "text of a", "completed"],
        ["read", { path: "b" }, "text of b", "completed"],
        ["write", null, "disk full", "failed"],
      ],
      "tools, paired first in, first out",
    );
    same([used.text, used.thinking], ["First, I look. Then I say é 日本 😀.", "let me see"], "text around tools");
    const [again] = (await adapter.history(session)).slice(-1);
    same([again.text, again.thinking], [used.text, used.thinking], "the same in history");
    same(again.tools.map((tool) => tool.result), used.tools.map((tool) => tool.result), "results in history");
    done.push("tools");
  }

  const anew = await finished(await adapter.regenerate(session, steered.runId, { text: LONG }));
  same([anew.text, anew.status], [LONG, "completed"], "regenerate");
  turns = await adapter.history(session);
  same(turns.map((turn) => turn.runId), [first, long, anew].map((turn) => turn.runId), "what came after is gone");
  const gone = await refusal(async () => finished(await adapter.resume(session, new Turn({ runId: cut.runId, eventId: "1" }))));
  same([gone.code, gone.status], ["run_replaced", 410], "a replaced run");
  done.push("regenerate");

  const edited = await finished(await adapter.edit(session, first.runId, { text: "other words" }));
  same([edited.text, edited.status], ["other words", "completed"], "edit");
  turns = await adapter.history(session);
  same(turns.map((turn) => [turn.asked, turn.text]), [["other words", "other words"]], "only the edited turn is left");
  done.push("edit");

  const unknown = await refusal(() => adapter.abort(session, new Turn({ runId: "run_unknown" })));
  same([unknown.code, unknown.status, unknown.retryable], ["run_not_found", 404, false], "errors");
  return done;
}

if (globalThis.process?.argv?.[2]) {
  const done = await walk(JSON.parse(process.argv[2]));
  console.log(JSON.stringify(done));
}
