// Answers under way. Each belongs to a conversation, which need not be the one shown.
import {events, model} from "./api.js";

const runs = new Map();  // by the conversation's id

export const run_of = chat => runs.get(chat.id);
export const all_runs = () => [...runs.values()];
export const stop = chat => run_of(chat)?.controller.abort();

// A user's turn as the model reads it: files in fences that their text does not contain.
export function content_of({text, files}) {
  if (!files.length) return text;
  const blocks = files.map(file => {
    const ticks = (file.text.match(/`{3,}/g) ?? ["``"])
        .reduce((a, b) => a.length > b.length ? a : b);
    return `${file.name}:\n${ticks}\`\n${file.text}\n${ticks}\`\n`;
  });
  return [...blocks, text].join("\n");
}

export const is_empty = turn => !turn.text && !turn.reasoning && !turn.calls?.length;

export const text_of_call = ({name, arguments: json}) => `${name} ${json}`;

function body_of(chat) {
  const turns = chat.turns.map(turn => {
    if (turn.role === "user") return {role: "user", content: content_of(turn)};
    const {text, reasoning, calls = []} = turn;
    const content = [text, ...calls.map(text_of_call)].filter(Boolean).join("\n");
    return {role: "assistant", content, ...(reasoning && {reasoning_content: reasoning})};
  });
  const {system, ...settings} = chat.settings;
  const sampling = {...usual_sampling(), ...settings};
  const stream = {stream: true, return_progress: true, stream_options: {include_usage: true}};
  if (!model.chats) {
    return {prompt: turns.map(turn => turn.content).join(""), ...sampling, ...stream};
  }
  const messages = system ? [{role: "system", content: system}, ...turns] : turns;
  return {messages, ...sampling, ...stream};
}

// What the model's files leave open: the temperature, and the limits if they state none of them.
export function usual_sampling() {
  const {temperature, top_k, top_p, min_p} = model.params;
  const limits = [top_k, top_p, min_p].some(value => value !== undefined);
  return {...(temperature === undefined && {temperature: 0.7}),
          ...(!limits && {top_p: 0.95, min_p: 0.05})};
}

function take(run, event) {
  const {turn} = run;
  if (event.prompt_progress) run.progress = event.prompt_progress;
  if (event.usage) turn.usage = event.usage;
  const choice = event.choices?.[0];
  if (!choice) return;
  const text = choice.delta?.content ?? choice.text ?? "";
  const reasoning = choice.delta?.reasoning_content ?? "";
  const calls = choice.delta?.tool_calls ?? [];
  for (const {index, function: part} of calls) {
    const call = turn.calls[index] ??= {name: "", arguments: ""};
    call.name += part.name ?? "";
    call.arguments += part.arguments ?? "";
  }
  if (text || reasoning || calls.length) {
    run.last = performance.now();
    run.first ??= run.last;
    ++run.pieces;
    if (!reasoning && turn.reasoning) turn.thought ??= (run.last - run.first) / 1e3;
    turn.reasoning += reasoning;
    turn.text += text;
  }
  if (choice.finish_reason) turn.end = choice.finish_reason;
}

const kShortest = 20;  // milliseconds; less is one piece of the network, not the model's speed

// Tokens a second, and the context used. Without a usage (a stopped answer) a piece of the stream
// counts as a token.
export function figures_of(run) {
  const {turn, progress, pieces, asked, first, last} = run;
  const tokens = turn.usage?.completion_tokens ?? pieces;
  const prompt = turn.usage?.prompt_tokens ?? progress?.total ?? 0;
  return {tokens, context: prompt + tokens, exact: Boolean(turn.usage),
          cached: turn.usage?.prompt_tokens_details?.cached_tokens ?? progress?.cache ?? 0,
          first: first && (first - asked) / 1e3,
          speed: tokens > 1 && last - first > kShortest ? (tokens - 1) / (last - first) * 1e3
                                                        : undefined};
}

// Asks for an answer to the conversation's last turn; `versions` are its turn's others and index.
// Returns the error, if any; null otherwise. An answer that was stopped or failed before it began
// is removed.
export async function answer(chat, versions, changed) {
  const turn = {role: "assistant", text: "", reasoning: "", calls: [], ...versions};
  const run = {chat, turn, controller: new AbortController(), asked: performance.now(), pieces: 0};
  const body = body_of(chat);
  chat.turns.push(turn);
  runs.set(chat.id, run);
  changed(run);
  let error = null;
  try {
    const path = model.chats ? "v1/chat/completions" : "v1/completions";
    for await (const event of events(path, body, run.controller.signal)) {
      take(run, event);
      changed(run);
    }
  } catch (caught) {
    if (caught.name === "AbortError") {
      turn.end = "stopped";
    } else {
      error = caught;
      turn.end = "error";
    }
  }
  runs.delete(chat.id);
  turn.figures = figures_of(run);
  delete turn.usage;
  if (is_empty(turn) && ["stopped", "error"].includes(turn.end)) {
    chat.turns.splice(chat.turns.indexOf(turn), 1);
  }
  return error;
}
