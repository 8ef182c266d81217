// The settings of the shown conversation, the page's appearance, and the API key.
import {has_key, model, on_key_needed, use_key} from "./api.js";
import {$} from "./dom.js";
import * as panel from "./panel.js";
import {kTemperature} from "./runs.js";
import * as store from "./store.js";

let shown = null, changed = null;
// `chat` returns the shown conversation; `change` gets its new settings.
export function begin_settings(chat, change) {
  shown = chat;
  changed = change;
}

const kNumbers = ["temperature", "top_k", "max_tokens"];
$("show-settings").onclick = () => {
  const {params} = model;
  $("temperature").placeholder = params.temperature === undefined
      ? `${kTemperature} (the model states none)`
      : `${+params.temperature.toFixed(3)} (the model's)`;
  $("top_k").placeholder = params.top_k === undefined ? "all tokens"
                                                      : `${params.top_k} (the model's)`;
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
