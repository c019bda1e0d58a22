// Reads the page's data, starts the engine, and draws the state whenever it has changed.
import { makeActions } from './actions.ts';
import { block, blockText, pageData, requireBlock } from './blocks.ts';
import { patch } from './dom.ts';
import { Client } from './engine/client.ts';
import type { Answer } from './engine/host.ts';
import { fromHash, toHash, within } from './hash.ts';
import { listenToKeys } from './keyboard.ts';
import { listenToMenus } from './menus.ts';
import { choice, waitsForRow } from './select.ts';
import { initialState, isDark, isFull, isRecorded, Store, type Cell, type State } from './state.ts';
import { isAnswered, switchAsking, waitsForSwitched } from './switch_asking.ts';
import { dialog } from './views/dialogs.ts';
import { footer } from './views/footer.ts';
import { head } from './views/head.ts';
import { heads } from './views/heads.ts';
import { inspector, spoken } from './views/inspector.ts';
import { sentence } from './views/sentence.ts';
import { top } from './views/top.ts';
import type { Row } from './types.ts';

const $ = (id: string) => document.getElementById(id)!;

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const data = pageData();
// A recorded page has one text, whatever a link says.
function link() {
  const from = fromHash(location.hash, data.text);
  return data.recorded ? { ...from, text: data.text } : from;
}
const { headGiven, ...linked } = link();
const store = new Store({ ...initialState(data), ...linked, systemDark: systemDark.matches,
                          windowWidth: innerWidth });
const actions = makeActions(store);

// What tests ask for: how long passes and drawings took, and how much memory is in use.
const measured = { firstMap: 0, passes: [] as number[], draws: [] as number[], waits: [] as number[], answers: [] as number[], switched: [] as number[],
                   engineBytes: 0, arrayBytes: 0, inWorker: true };
let typedAt = 0;

// The story head is chosen once, unless a link names one.
let choosesHead = !headGiven;
let fallsBack = true; // once
let asked = 0;
let askedSteps = '';
let askedSecond = 0;
let askedDiagnosis = 0;

function answered(answer: Answer): void {
  if (answer.kind === 'started') {
    engineStarted = true;
    orSay(giveData);
  } else if (answer.kind === 'loaded') {
    store.update({ sizes: answer.sizes });
  } else if (answer.kind === 'error') {
    askedRow = null;
    askedPair = '';
    failed(answer.id, inPlainWords(answer.message));
  } else if (answer.kind === 'steps') {
    const { layer, head, steps } = answer;
    if (layer === store.state.layer && head === store.state.head) store.update({ steps: { layer, head, steps } });
  } else if (answer.kind === 'second') {
    if (answer.id !== askedSecond) return;
    const error = answer.error && inPlainWords(answer.error);
    const { compared } = store.state;
    store.update({ compared: { ...compared, run: answer.run ?? compared.run, error } });
  } else if (answer.kind === 'diagnosis') {
    if (answer.id !== askedDiagnosis) return;
    const { done, heads, error } = answer;
    store.update({ diagnosis: { done, heads, error: error && inPlainWords(error) } });
  } else if (answer.kind === 'row') {
    rowAnswered(answer.row);
    measured.engineBytes = answer.bytes;
  } else if (answer.kind === 'pair') {
    askedPair = '';
    store.update({ pair: answer.pair });
  } else if (answer.kind === 'switched' || answer.kind === 'effect') {
    if (answer.kind === 'switched') measured.switched.push(answer.milliseconds);
    answeredSwitching(answer);
  } else if (answer.kind === 'run' && answer.id === asked) {
    measured.passes.push(answer.run.milliseconds);
    if (typedAt) measured.waits.push(answer.run.begun - performance.timeOrigin - typedAt);
    measured.engineBytes = answer.bytes;
    const { weights, norms, pooled } = answer.run;
    measured.arrayBytes = weights.byteLength + norms.byteLength + (pooled ? pooled.tiles.byteLength + pooled.last.byteLength + pooled.small.tiles.byteLength : 0);
    const chosen = choosesHead ? answer.run.opening : {};
    choosesHead = false;
    const error = answer.run.text === store.state.text ? null : store.state.error;
    store.update({ run: answer.run, error, steps: null, hover: null, ...chosen });
    store.update(within(store.state));
  }
}

// A text that cannot be run leaves the one before it on screen; a link to one has none before it, and
// the page's own takes its place.
function failed(id: number, message: string): void {
  const s = store.state;
  if (id !== 0 && id < asked) return;
  if (id !== asked || (!s.run && (!fallsBack || s.text === data.text))) {
    store.update({ error: message });
  } else if (s.run) {
    store.update({ error: `${message} The earlier text is still shown.` });
  } else {
    fallsBack = false;
    store.update({ error: `${message} The text of this page is shown instead.` });
    asked = client.ask({ kind: 'run', text: data.text });
  }
}

// A sentence; the name of a file at its beginning stays as it is.
function inPlainWords(message: string): string {
  const words = message.replace(/^page: /, '').replace(/^[a-z]+(?![\w./-])/, (word) => word[0]!.toUpperCase() + word.slice(1));
  return words + (words.endsWith('.') ? '' : '.');
}

const client = new Client(answered);
const answeredSwitching = switchAsking(store, client);

// Of a pooled run: rows are asked for one at a time, the latest choice next.
let askedRow: { cell: Cell | null } | null = null;
function askForRow(s: State): void {
  if (askedRow || !waitsForRow(s)) return;
  const cell = s.hover ?? s.lock;
  askedRow = { cell };
  const { layer, head, over } = s;
  client.ask({ kind: 'row', row: { layer, head, over, query: cell!.query, block: (cell!.key === null && cell!.block) || null } });
}

function rowAnswered(row: Row): void {
  const cell = askedRow!.cell;
  askedRow = null;
  const found: Cell | null = cell?.block && cell.key === null ? { query: row.query, key: row.key, block: cell.block } : null;
  const s = store.state;
  store.update({ row, ...(found && s.hover === cell ? { hover: found } : {}), ...(found && s.lock === cell ? { lock: found } : {}) });
}

let askedPair = '';
function askForPair(s: State): void {
  if (!s.run || !isRecorded(s) || s.over || !s.neuron || s.error || askedPair || waitsForRow(s)) return;
  if (!isFull(s, s.layer * s.sizes!.num_heads + s.head)) return;
  const { layer, head, pair } = s;
  const { query, key } = choice(s);
  if (pair && pair.layer === layer && pair.head === head && pair.query === query && pair.key === key) return;
  askedPair = `${layer} ${head} ${query} ${key}`;
  client.ask({ kind: 'pair', pair: { layer, head, query, key } });
}

function askForSteps(s: State): void {
  if (isRecorded(s)) return;
  const wanted = s.run && s.sizes && !s.steps && !s.over && (s.tab === 'steps' || s.neuron);
  if (!wanted) return;
  const name = `${asked} ${s.layer} ${s.head}`;
  if (name === askedSteps) return;
  askedSteps = name;
  client.ask({ kind: 'steps', layer: s.layer, head: s.head });
}

// The second text is run when it is looked at.
let secondText: string | null = null;
function askForSecond(s: State): void {
  const { compared } = s;
  if (!s.sizes || isRecorded(s) || s.tab !== 'compare' || compared.with !== 'text') return;
  if (compared.text === secondText) return;
  secondText = compared.text;
  askedSecond = client.ask({ kind: 'second', text: compared.text });
}

store.subscribe((now, before) => {
  if (now.text !== before.text) {
    typedAt = performance.now();
    asked = client.ask({ kind: 'run', text: now.text });
  }
  if (now.run !== before.run || (before.steps && !now.steps)) askedSteps = '';
  askForSteps(now);
  askForRow(now);
  askForPair(now);
  askForSecond(now);
  const { probe } = data;
  const begins = now.diagnosis !== before.diagnosis && now.diagnosis && now.diagnosis.done === 0 && !now.diagnosis.error;
  if (begins && probe && !isRecorded(now)) {
    askedDiagnosis = client.ask({ kind: 'diagnose', probe: { length: probe.length, draws: probe.draws, seed: probe.seed } });
  }
  schedule();
});

let scheduled = false;
function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw(): void {
  scheduled = false;
  if (waitsForRow(store.state) || waitsForSwitched(store.state)) return; // drawn when that is there
  const begun = performance.now();
  render(store.state);
  const view = document.getElementById('view');
  if (view && !store.state.printing) {
    const { clientWidth: width, clientHeight: height } = view;
    if (width !== store.state.view.width || height !== store.state.view.height) {
      store.measured({ width, height });
      render(store.state);
    }
  }
  remember(store.state);
  if (!store.state.run) return;
  const now = performance.now();
  measured.draws.push(now - begun);
  measured.firstMap ||= now;
  if (typedAt && store.state.run.text === store.state.text) {
    measured.answers.push(now - typedAt);
    typedAt = 0;
  }
}

function render(s: State): void {
  document.documentElement.dataset.theme = isDark(s) ? 'dark' : 'light';
  patch($('top'), top(s, actions));
  patch($('sent'), sentence(s, actions));
  patch($('heads'), heads(s, actions));
  patch($('head'), head(s, actions));
  patch($('insp'), inspector(s, actions));
  patch($('foot'), footer(s));
  $('insp').classList.toggle('open', s.sheet);
  patch($('toast'), s.toast ? [s.toast] : []);
  $('toast').classList.toggle('on', s.toast !== null);
  const spokenNow = spoken(s);
  if ($('live').textContent !== spokenNow) $('live').textContent = spokenNow;
  const modal = $('dialog') as HTMLDialogElement;
  patch(modal, dialog(s, actions));
  if (s.dialog && !modal.open) modal.showModal();
  if (!s.dialog && modal.open) modal.close();
}

// Choices make steps for Back and Forward; typing and colours replace the one that is there.
let remembered: State | null = null;
function remember(s: State): void {
  if (!s.run) return;
  const hash = toHash(s);
  const before = remembered;
  remembered = s;
  if (hash === location.hash) return;
  const chose = before !== null && (s.layer !== before.layer || s.head !== before.head || s.over !== before.over ||
    s.compared.with !== before.compared.with || s.compared.place !== before.compared.place ||
    s.tab !== before.tab || s.step !== before.step || (s.lock === null) !== (before.lock === null) || s.grid !== before.grid ||
    String(s.switches.heads) !== String(before.switches.heads) || s.switches.off !== before.switches.off);
  try {
    if (chose && s.text === before.text) history.pushState(null, '', hash);
    else history.replaceState(null, '', hash);
  } catch {
    // In the frame of a notebook: it has no address of its own.
  }
}

function followLink(): void {
  const { headGiven: given, ...linked } = link();
  if (!given && store.state.run) Object.assign(linked, store.state.run.opening);
  const { run, error, text } = store.state.compared;
  if (linked.compared) linked.compared = { ...linked.compared, run, error: linked.compared.text === text ? error : null };
  store.update({ ...linked, hover: null, steps: null });
  store.update(within(store.state));
  remembered = store.state;
}

let toastTimer = 0;
store.subscribe((now, before) => {
  if (!now.toast || now.toast === before.toast) return;
  clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => store.update({ toast: null }), Math.max(2200, 60 * now.toast.length));
});

// On paper: light, and as large as the sheet allows, whatever the window is.
let onScreen: Partial<State> = {};
addEventListener('beforeprint', () => {
  const { view, windowWidth } = store.state;
  onScreen = { view, windowWidth };
  store.update({ printing: true, windowWidth: 1280, view: { width: 470, height: 460 }, popover: null, hover: null });
  draw();
});
addEventListener('afterprint', () => store.update({ printing: false, ...onScreen }));
addEventListener('popstate', followLink);
addEventListener('resize', () => store.update({ windowWidth: innerWidth }));
systemDark.addEventListener('change', (event) => store.update({ systemDark: event.matches }));
$('dialog').addEventListener('close', () => store.update({ dialog: null }));
listenToMenus(store);
listenToKeys(store, actions);
Object.defineProperty(window, 'cephalo', {
  value: { get state() { return store.state; }, get waiting() { return waitsForRow(store.state) || askedPair !== ''; },
           get answered() { return isAnswered(store.state); },
           get measured() { return { ...measured, inWorker: client.inWorker }; } },
});

schedule();

// The script stands before the large parts of the file: the engine is made ready while the browser
// is still reading them.
let engineStarted = false;
let pageRead = document.readyState !== 'loading';

function giveData(): void {
  if (!engineStarted || !pageRead) return;
  if (data.recorded) {
    asked = client.ask({ kind: 'recording', ...blockText('recording'), text: data.text, recorded: data.recorded });
    return;
  }
  requireBlock('model-merges');
  client.load({
    kind: 'load', probe: data.probe?.scores ?? null,
    files: { name: data.model.name, config: block('model-config'), parameters: block('model-parameters'),
             vocab: block('model-vocab'), merges: block('model-merges') },
  });
  asked = client.ask({ kind: 'run', text: store.state.text });
}

function orSay(work: () => void): void {
  try {
    work();
  } catch (error) {
    store.update({ error: inPlainWords((error as Error).message) });
  }
}

document.addEventListener('DOMContentLoaded', () => {
  pageRead = true;
  orSay(giveData);
});
orSay(() => client.start(block('engine')));
