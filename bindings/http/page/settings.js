// The settings of the shown conversation, the page's appearance, and the API key.
import {has_key, model, on_key_needed, use_key} from "./api.js";
import {$} from "./dom.js";
import * as panel from "./panel.js";
import {usual_sampling} from "./runs.js";
import * as store from "./store.js";

let shown = null, changed = null;
// `chat` returns the shown conversation; `change` gets its new settings.
export function begin_settings(chat, change) {
  shown = chat;
  changed = change;
}

const kNumbers = ["temperature", "top_k", "top_p", "min_p", "max_tokens"];
const kOff = {temperature: 1, top_k: "all", top_p: 1, min_p: 0};
$("show-settings").onclick = () => {
  const usual = usual_sampling();
  for (const [name, off] of Object.entries(kOff)) {
    const value = usual[name] ?? model.params[name] ?? off;
    $(name).placeholder = typeof value === "number" ? `${+value.toFixed(3)}` : value;
  }
  $("stated").textContent = usual.temperature === undefined ? "the model's own"
                                                            : "as the model states none";
  $("system-field").hidden = !model.chats;
  const {settings} = shown();
  $("system").value = settings.system ?? "";
  for (const name of kNumbers) $(name).value = settings[name] ?? "";
  $("theme").value = localStorage.getItem("fasa.theme") ?? "";
  $("settings").showModal();
};
$("settings").onclose = () => {
  const settings = {system: $("system").value.trim() || undefined};
  for (const name of kNumbers) {
    const field = $(name);
    if (field.value !== "" && field.checkValidity()) settings[name] = +field.value;
  }
  store.save_settings(settings);
  changed(settings);
};
function apply_theme() {
  document.documentElement.dataset.theme = localStorage.getItem("fasa.theme") ?? "";
}
$("theme").onchange = () => {
  localStorage.setItem("fasa.theme", $("theme").value);
  apply_theme();
};
apply_theme();

function show_key(why) {
  $("key-why").textContent = why;
  $("key").value = "";
  if (!$("key-dialog").open) $("key-dialog").showModal();
}
on_key_needed(wrong => show_key(wrong ? "The server does not know this key."
                                      : "This server asks for a key."));
$("change-key").onclick = () => {
  $("settings").close();
  show_key(has_key() ? "Replaces the present key." : "Not needed unless the server asks for one.");
};
$("key-cancel").onclick = () => $("key-dialog").close();
$("key-form").onsubmit = () => {
  use_key($("key").value.trim());
  panel.watch();
};
