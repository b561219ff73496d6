// The chat page: log in, one conversation at a time over /ws/app, streamed answers, files as links.

const TEXTS = {
  en: {
    username: "Username", password: "Password", logIn: "Log in", logOut: "Log out", send: "Send", message: "Message",
    hint: "Write a message (Enter sends, Shift+Enter: new line)", newSession: "New conversation",
    connected: "Connected", connecting: "Connecting …", wrong: "Wrong username or password.",
    wait: "Too many tries. Wait a moment.", failed: "That did not work. Try again.", download: "Download",
    errors: {
      queued: "The agent is away. It gets this message when it comes.", offline: "The agent is away.",
      timeout: "The agent has not answered yet.", rate_limited: "Too fast. Wait a moment.",
      file_too_large: "This file is too large.", upload_failed: "This file could not be sent.",
    },
  },
  zh: {
    username: "用户名", password: "密码", logIn: "登录", logOut: "退出", send: "发送", message: "消息",
    hint: "输入消息（Enter 发送，Shift+Enter 换行）", newSession: "新对话",
    connected: "已连接", connecting: "连接中…", wrong: "用户名或密码错误。",
    wait: "尝试次数过多，请稍候。", failed: "操作失败，请重试。", download: "下载",
    errors: {
      queued: "助手不在线，上线后会收到这条消息。", offline: "助手不在线。", timeout: "助手尚未回复。",
      rate_limited: "发送过快，请稍候。", file_too_large: "文件过大。", upload_failed: "文件发送失败。",
    },
  },
};
const language = (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
const say = TEXTS[language];
const byId = (id) => document.getElementById(id);
const BACKOFF_SECONDS = [1, 2, 4, 8, 30];
const PING_SECONDS = 30;

let user = "";
let access = "";
let refreshToken = sessionStorage.getItem("refresh") || "";
let session = ""; // the one that is shown; the address names it, so tabs and the back button have their own
let socket = null;
let attempt = 0;
let timers = [];
const streams = new Map(); // session -> its open bubble
const lists = new Map(); // session -> its list of bubbles; frames go to theirs, shown or not

document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
for (const element of document.querySelectorAll("[data-text]")) element.textContent = say[element.dataset.text];
byId("text").placeholder = say.hint;
byId("text").ariaLabel = say.message;

function newId() {
  // randomUUID is there in secure contexts only; a phone on the local network may have plain http
  if (crypto.randomUUID) return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// --- Logging in ---------------------------------------------------------------------------------------------------
async function post(path, body) {
  return fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), credentials: "omit",
  });
}

function keep(pair) {
  access = pair.access;
  refreshToken = pair.refresh;
  sessionStorage.setItem("refresh", refreshToken);
}

async function renew() {
  if (!refreshToken) return false;
  const answer = await post("/api/auth/refresh", { refresh: refreshToken });
  if (answer.ok) keep(await answer.json());
  else if (answer.status === 401) forget();
  return answer.ok;
}

function forget() {
  access = refreshToken = "";
  sessionStorage.removeItem("refresh");
}

function claims() {
  const middle = access.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(middle), (letter) => letter.charCodeAt(0))));
}

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  byId("login-error").textContent = "";
  try {
    const answer = await post("/api/auth/token", Object.fromEntries(form));
    if (answer.ok) {
      keep(await answer.json());
      event.target.reset();
      await open();
    } else {
      byId("login-error").textContent = { 401: say.wrong, 429: say.wait }[answer.status] || say.failed;
    }
  } catch {
    byId("login-error").textContent = say.failed;
  }
});

byId("log-out").addEventListener("click", async () => {
  const ended = refreshToken;
  stop();
  forget();
  byId("messages").replaceChildren();
  show("login");
  await post("/api/auth/logout", { refresh: ended }).catch(() => {});
});

function show(id) {
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== id;
  (id === "chat" ? byId("text") : document.querySelector("#login input")).focus();
}

// --- The socket ---------------------------------------------------------------------------------------------------
async function open() {
  user = claims().sub;
  lists.clear();
  streams.clear();
  show("chat");
  await enter(named() || localStorage.getItem(`session of ${user}`) || newId());
  connect();
}

function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

// Show a conversation; its history is read when it is shown for the first time.
async function enter(id) {
  session = id;
  localStorage.setItem(`session of ${user}`, id);
  if (named() !== id) window.history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  const known = lists.has(id);
  byId("messages").replaceWith(listOf(id));
  byId("messages").scrollTop = byId("messages").scrollHeight;
  byId("text").focus();
  if (!known) await history(id);
}

function listOf(id) {
  if (!lists.has(id)) {
    const list = document.createElement("ol");
    list.id = "messages";
    list.role = "log";
    list.ariaLive = "polite";
    list.tabIndex = 0;
    lists.set(id, list);
  }
  return lists.get(id);
}

function stop() {
  timers.forEach(clearTimeout);
  timers = [];
  const old = socket;
  socket = null;
  old?.close(1000);
}

function connect() {
  stop();
  state(false);
  const address = new URL("/ws/app", location.href);
  address.protocol = address.protocol.replace("http", "ws");
  address.searchParams.set("token", access);
  const mine = (socket = new WebSocket(address));
  mine.onopen = () => {
    attempt = 0;
    state(true);
    ping(mine);
    const life = (claims().exp - claims().iat) * 1000;
    timers.push(setTimeout(() => renew().then((good) => (good ? connect() : undefined)).catch(() => {}), life * 0.8));
  };
  mine.onmessage = (event) => receive(JSON.parse(event.data));
  mine.onclose = (event) => {
    if (socket === mine) comeBack(event.code);
  };
}

function ping(mine) {
  if (socket !== mine) return;
  mine.send(JSON.stringify({ type: "ping" }));
  timers.push(setTimeout(() => ping(mine), PING_SECONDS * 1000));
}

function comeBack(code) {
  state(false);
  const seconds = BACKOFF_SECONDS[Math.min(attempt++, BACKOFF_SECONDS.length - 1)];
  timers.push(setTimeout(async () => {
    try {
      const answer = await fetch("/api/me", { headers: { Authorization: `Bearer ${access}` }, credentials: "omit" });
      if (answer.status === 403 || code === 4403) forget();
      if (answer.status === 401) await renew();
      if (!access) return show("login");
    } catch {
      // the server is away: go on trying
    }
    connect();
  }, seconds * 1000));
}

function state(connected) {
  byId("state").textContent = connected ? say.connected : say.connecting;
}

// --- Frames -------------------------------------------------------------------------------------------------------
function receive(frame) {
  const data = frame.data || {};
  switch (frame.type) {
    case "text":
      settle(bubble(frame), data.text);
      break;
    case "stream_start": {
      const item = bubble(frame);
      item.replaceChildren(document.createTextNode(""));
      item.classList.add("open");
      streams.set(frame.session, item);
      break;
    }
    case "stream":
      streams.get(frame.session)?.firstChild.appendData(data.text);
      break;
    case "stream_end":
      streams.get(frame.session)?.classList.remove("open");
      streams.delete(frame.session);
      break;
    case "image": case "voice": case "video": case "file":
      attach(bubble(frame), data);
      break;
    case "error":
      settle(bubble({ from: "gateway", session: frame.session || session }, "error"), say.errors[data.queued ? "queued" : data.code] || data.text);
      break;
  }
  byId("messages").scrollTop = byId("messages").scrollHeight;
}

function bubble(frame, kind) {
  const list = listOf(frame.session);
  const known = [...list.children].find((item) => frame.id && item.dataset.id === `${frame.from} ${frame.id}`);
  if (known) return known;
  const item = document.createElement("li");
  if (frame.id) item.dataset.id = `${frame.from} ${frame.id}`;
  if (frame.from === user) item.classList.add("mine");
  if (kind) item.classList.add(kind);
  list.append(item);
  return item;
}

function settle(item, text) {
  item.classList.remove("open");
  item.replaceChildren(document.createTextNode(text || ""));
}

async function attach(item, data) {
  const media = data.media || {};
  settle(item, data.text);
  const answer = await fetch(`/media/${encodeURIComponent(media.id)}`, { headers: { Authorization: `Bearer ${access}` } });
  const link = document.createElement("a");
  link.textContent = `${say.download}: ${media.name}`;
  if (answer.ok) {
    link.href = URL.createObjectURL(await answer.blob());
    link.download = media.name;
    if ((media.type || "").startsWith("image/")) {
      const image = document.createElement("img");
      image.src = link.href;
      image.alt = media.name;
      link.replaceChildren(image);
    }
  }
  item.append(link);
}

async function history(id) {
  const query = new URLSearchParams({ session: id, limit: "100" });
  try {
    const answer = await fetch(`/api/frames?${query}`, { headers: { Authorization: `Bearer ${access}` }, credentials: "omit" });
    if (!answer.ok) return;
    const newer = [...listOf(id).children]; // came while the history was read
    listOf(id).replaceChildren();
    for (const frame of (await answer.json()).data) receive(frame);
    for (const item of newer) {
      if (![...listOf(id).children].some((old) => old.dataset.id && old.dataset.id === item.dataset.id)) listOf(id).append(item);
    }
  } catch {
    // without history the conversation still goes on
  }
}

// --- Writing ------------------------------------------------------------------------------------------------------
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  if (!text || socket?.readyState !== WebSocket.OPEN) return;
  const frame = {
    id: newId(), type: "text", from: user, to: "hermes", session,
    ts: Math.floor(Date.now() / 1000), data: { text },
  };
  socket.send(JSON.stringify(frame));
  receive(frame);
  byId("text").value = "";
});

byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("composer").requestSubmit();
  }
});

byId("new-session").addEventListener("click", () => {
  location.hash = encodeURIComponent(newId());
});

window.addEventListener("hashchange", () => {
  if (user && access && named() && named() !== session) enter(named());
});

// --- Start --------------------------------------------------------------------------------------------------------
renew().then((good) => (good ? open() : show("login"))).catch(() => show("login"));
