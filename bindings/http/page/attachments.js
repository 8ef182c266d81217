// Texts that go with a message: files that were dropped or chosen, and long pasted texts.
import {metrics, model, request} from "./api.js";
import {$, bytes, icon_button, make, number, problem, seconds} from "./dom.js";

const kMaxBytes = 8 << 20;
const kPasteChars = 2000, kPasteLines = 40;  // more becomes an attachment

export const is_long = text => text.length > kPasteChars || text.split("\n").length > kPasteLines;

// {name, text}; null, after saying why, if it is no text.
export async function read_file(file) {
  if (file.size > kMaxBytes) {
    problem(`${file.name} has ${bytes(file.size)}; allowed: ${bytes(kMaxBytes)}`);
    return null;
  }
  try {
    const text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return {name: file.name, text};
  } catch { /* said below */ }
  problem(`${file.name} is no text in UTF-8; the model reads text only`);
  return null;
}

let prefill_rate = 0;  // tokens a second, measured by the server; 0: not yet

export async function count(file) {
  const reply = await request("tokenize", {method: "POST", body: {content: file.text}});
  file.tokens = (await reply.json()).tokens.length;
  await measure();
}

export async function measure() {
  const values = await metrics();
  const read = values.fasa_prompt_tokens_total - values.fasa_cached_tokens_total;
  const took = values.fasa_prefill_step_seconds_sum;
  prefill_rate = took > 0 ? read / took : 0;
}

// What a text of so many tokens will cost.
export function cost(tokens) {
  const memory = model.token_bytes;
  return [`${number(tokens)} tokens`,
          memory && bytes(tokens * (memory.device + memory.host)),
          prefill_rate ? `about ${seconds(tokens / prefill_rate)}` : "time not measured yet"]
      .filter(Boolean).join(" · ");
}

const tokens_of = files => files.reduce((sum, file) => sum + (file.tokens ?? 0), 0);

// Why the files cannot be sent after `used` tokens; "": they fit, as far as is known.
export function refusal(files, used) {
  const tokens = tokens_of(files);
  if (!tokens || !model.context || used + tokens < model.context) return "";
  return `The attached texts have ${number(tokens)} tokens` +
         (used ? ` and the conversation ${number(used)}` : "") +
         `; the context has room for ${number(model.context)}, answer included. Remove a text` +
         (used ? " or begin a new conversation." : ".");
}

// `used`: tokens of the conversation so far. `changed` gets the files without one, and the text
// that goes into the message instead.
export function show(files, used, changed) {
  $("files").hidden = files.length === 0;
  $("files").replaceChildren(...files.map((file, index) => {
    const fits = !refusal(files.slice(0, index + 1), used);
    const without = text => changed(files.filter(one => one !== file), text);
    const over = `${number(file.tokens ?? 0)} tokens · more than the context of `;
    const note = file.tokens === undefined ? file.failed ?? "counting tokens"
        : fits ? cost(file.tokens) : over + number(model.context);
    return make("li", {className: fits ? "" : "bad"},
      make("span", {title: "Memory of the cache, and the time to read it"}, file.name + " ",
           make("small", {}, note)),
      file.pasted ? icon_button("edit", "Put it into the message", () => without(file.text)) : null,
      icon_button("close", `Remove ${file.name}`, () => without("")));
  }));
}
