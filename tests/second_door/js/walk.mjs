// A walk through every capability of the adapter. Returns what it has done; throws at the first thing that is wrong.
import { AdapterError, Turn, createAdapter, exampleFunctions } from "./adapter.mjs";

const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

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

// `scene`: what to say to the agent at the other end, and what it makes of it.
//   short, other, endless, long  {said, text}; `endless` is stopped, of `long` some is heard before the line is cut
//   steer  {said, when, taken, text, left}; `when` to steer: at the first "text" or "tool"; `left` comes back unused
//   picture  [status, code] of the turn that has one
//   tools  {said, text, thinking, shown: [[name, input, part of the result or null, status]]} or null
export async function walk({ base, headers, scene }) {
  const { short, other, endless, long: lasting, tools } = scene;
  const adapter = createAdapter(exampleFunctions(base, headers));
  const session = `walk ${crypto.randomUUID()}/é`;
  const done = [];

  same(await adapter.history(session), [], "history of a session that is not there");

  const first = await finished(await adapter.run(session, { text: short.said }));
  same([first.text, first.status, first.error], [short.text, "completed", null], "run");
  done.push("run");

  const long = await adapter.run(session, { text: endless.said });
  await long.until((turn) => turn.text !== "");
  const busy = await refusal(async () => finished(await adapter.run(session, { text: "too soon" })));
  same([busy.code, busy.retryable], ["run_already_active", true], "a second run at once");
  await adapter.abort(session, long);
  await finished(long);
  same(long.status, "interrupted", "abort");
  if (!endless.text.startsWith(long.text.trim()) || long.text === endless.text) throw new Error(`abort: ${long.text}`);
  await adapter.abort(session, long); // again: no harm
  same(await adapter.steer(session, long, "too late"), false, "steer after the end");
  done.push("abort");

  const steered = await adapter.run(session, { text: scene.steer.said });
  await steered.until((turn) => (scene.steer.when === "tool" ? turn.tools.length > 0 : turn.text !== ""));
  same(await adapter.steer(session, steered, "and this"), scene.steer.taken, "steer");
  await finished(steered);
  if (!new RegExp(scene.steer.text, "s").test(steered.text)) throw new Error(`the steered text: ${steered.text}`);
  same([steered.status, steered.leftOver], ["completed", scene.steer.left], "the steered turn");
  done.push("steer");

  const line = new AbortController();
  const cut = await adapter.run(session, { text: lasting.said }, line.signal);
  await cut.until((turn) => turn.text.split(" ").length > 3);
  line.abort();
  await finished(cut);
  same(cut.status, "unknown", "a cut line says nothing of the run");
  const reloaded = (await adapter.history(session)).at(-1);
  same(reloaded.runId, cut.runId, "history has the running turn");
  await finished(await adapter.resume(session, cut));
  same([cut.text, cut.status], [lasting.text, "completed"], "resume");
  if (reloaded.status === "running") {
    await finished(await adapter.resume(session, reloaded));
    same(reloaded.text, lasting.text, "history and the rest by resume");
  }
  done.push("resume");

  const pictured = await finished(
    await adapter.run(session, { text: "look", attachments: [{ type: "image/png", url: PIXEL }] }),
  );
  same([pictured.status, pictured.error], scene.picture, "an image");
  const refused = await refusal(() => adapter.run(session, { text: "x", attachments: [{ type: "text/plain", url: "" }] }));
  same(refused.code, "UNSUPPORTED_ATTACHMENT", "an attachment that is no image");

  let turns = await adapter.history(session);
  same(turns.map((turn) => turn.runId), [first, long, steered, cut, pictured].map((turn) => turn.runId), "runs of history");
  same(turns.slice(0, 4).map((turn) => turn.text), [first, long, steered, cut].map((turn) => turn.text), "texts of history");
  same(turns.map((turn) => turn.status), ["completed", "cancelled", "completed", "completed", pictured.status], "how they stand");
  same(turns[0].asked, short.said, "what was asked");
  same(turns[0].eventId, first.eventId, "the number of the end");
  same(turns[4].asked[1].image_url.url.split("/").at(-2), "media", "an image in history");
  done.push("history");

  if (tools) {
    const used = await finished(await adapter.run(session, { text: tools.said }));
    const shown = used.tools.map(({ name, input, status }) => [name, input, status]);
    same(shown, tools.shown.map(([name, input, , status]) => [name, input, status]), "tools, paired first in, first out");
    for (const [place, [name, , part]] of tools.shown.entries()) {
      const { result } = used.tools[place];
      if (part === null ? result !== null : !result?.includes(part)) throw new Error(`${name} ${place}: ${result}`);
    }
    same([used.text, used.thinking], [tools.text, tools.thinking], "text around tools");
    const [again] = (await adapter.history(session)).slice(-1);
    same([again.text, again.thinking], [used.text, used.thinking], "the same in history");
    same(again.tools.map((tool) => tool.name), used.tools.map((tool) => tool.name), "tools in history");
    same(again.tools.map((tool) => tool.result), used.tools.map((tool) => tool.result ?? ""), "results in history");
    done.push("tools");
  }

  const anew = await finished(await adapter.regenerate(session, steered.runId, { text: lasting.said }));
  same([anew.text, anew.status], [lasting.text, "completed"], "regenerate");
  turns = await adapter.history(session);
  same(turns.map((turn) => turn.runId), [first, long, anew].map((turn) => turn.runId), "what came after is gone");
  const gone = await refusal(async () => finished(await adapter.resume(session, new Turn({ runId: cut.runId, eventId: "1" }))));
  same([gone.code, gone.status], ["run_replaced", 410], "a replaced run");
  done.push("regenerate");

  const edited = await finished(await adapter.edit(session, first.runId, { text: other.said }));
  same([edited.text, edited.status], [other.text, "completed"], "edit");
  turns = await adapter.history(session);
  same(turns.map((turn) => [turn.asked, turn.text]), [[other.said, other.text]], "only the edited turn is left");
  done.push("edit");

  const unknown = await refusal(() => adapter.abort(session, new Turn({ runId: "run_unknown" })));
  same([unknown.code, unknown.status, unknown.retryable], ["run_not_found", 404, false], "errors");
  return done;
}

if (globalThis.process?.argv?.[2]) {
  const done = await walk(JSON.parse(process.argv[2]));
  console.log(JSON.stringify(done));
}
