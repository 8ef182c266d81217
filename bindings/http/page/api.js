// Requests to the server that this page comes from.
let key = sessionStorage.getItem("fasa.key") ?? "";
let ask_for_key = () => {};

export const has_key = () => key !== "";
export function use_key(value) {
  key = value;
  sessionStorage.setItem("fasa.key", key);
}
// Called once the server wants a key, or another one.
export function on_key_needed(handler) { ask_for_key = handler; }

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function request(path, {method = "GET", body, signal} = {}) {
  const headers = key ? {Authorization: "Bearer " + key} : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(path, {method, headers, signal, body: body && JSON.stringify(body)});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer.");
  }
  if (reply.ok) return reply;
  const answer = await reply.json().catch(() => ({}));
  if (reply.status === 401) ask_for_key(key !== "");
  throw new Refused(reply.status, answer.error?.message ?? `The server answered ${reply.status}.`);
}

export const get_json = async path => (await request(path)).json();

// The objects of a stream.
export async function* events(path, body, signal) {
  const reply = await request(path, {method: "POST", body, signal});
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = "";;) {
      const {value, done} = await reader.read();
      if (done) throw new Refused(0, "The connection to the server broke.");
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        if (frame === "data: [DONE]") return;
        if (!frame.startsWith("data: ")) continue;
        const event = JSON.parse(frame.slice(6));
        if (event.error) throw new Refused(500, event.error.message);
        yield event;
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Refused) throw error;
    throw new Refused(0, "The connection to the server broke.");
  }
}

// What the server says about its model; null before the first answer.
export const model = {name: "", context: 0, chats: true, params: {}, token_bytes: null};

export async function load_model() {
  const [models, props] = [await get_json("v1/models"), await get_json("props")];
  model.name = models.data[0].id;
  model.context = models.data[0].max_model_len;
  model.chats = props.chat_template !== "";
  model.params = props.default_generation_settings.params;
  model.token_bytes = props.kv_bytes_per_token;
}

export async function metrics() {
  const values = {};
  for (const line of (await (await request("metrics")).text()).split("\n")) {
    if (!line || line[0] === "#") continue;
    const at = line.lastIndexOf(" ");
    values[line.slice(0, at)] = +line.slice(at + 1);
  }
  return values;
}
