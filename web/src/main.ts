// Reads the page's data, starts the engine, and draws the state whenever it has changed.
import { makeActions } from './actions.ts';
import { block, pageData } from './blocks.ts';
import { patch } from './dom.ts';
import { Client } from './engine/client.ts';
import type { Answer } from './engine/host.ts';
import { fromHash, toHash, within } from './hash.ts';
import { listenToKeys } from './keyboard.ts';
import { openingHead } from './select.ts';
import { initialState, isDark, Store, type State } from './state.ts';
import { dialog } from './views/dialogs.ts';
import { footer } from './views/footer.ts';
import { head } from './views/head.ts';
import { heads } from './views/heads.ts';
import { inspector, spoken } from './views/inspector.ts';
import { sentence } from './views/sentence.ts';
import { top } from './views/top.ts';

const $ = (id: string) => document.getElementById(id)!;

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const data = pageData();
const { headGiven, ...linked } = fromHash(location.hash, data.text);
const store = new Store({ ...initialState(data), ...linked, systemDark: systemDark.matches,
                          windowWidth: innerWidth });
const actions = makeActions(store);

// What tests ask for: how long passes and drawings took, and how much memory is in use.
const measured = { firstMap: 0, passes: [] as number[], draws: [] as number[], answers: [] as number[],
                   engineBytes: 0, inWorker: true };
let typedAt = 0;

// The story head is chosen once, unless a link names one.
let choosesHead = !headGiven;
let asked = 0;
let askedSteps = '';

function answered(answer: Answer): void {
  if (answer.kind === 'loaded') {
    store.update({ sizes: answer.sizes });
  } else if (answer.kind === 'error') {
    if (answer.id === 0 || answer.id >= asked) store.update({ error: inPlainWords(answer.message) });
  } else if (answer.kind === 'steps') {
    const { layer, head, steps } = answer;
    if (layer === store.state.layer && head === store.state.head) store.update({ steps: { layer, head, steps } });
  } else if (answer.id === asked) {
    measured.passes.push(answer.run.milliseconds);
    measured.engineBytes = answer.bytes;
    const chosen = choosesHead ? openingHead(answer.run) : {};
    choosesHead = false;
    store.update({ run: answer.run, error: null, steps: null, hover: null, ...chosen });
    store.update(within(store.state));
  }
}

function inPlainWords(message: string): string {
  const words = message.replace(/^page: /, '');
  return words[0]!.toUpperCase() + words.slice(1) + (words.endsWith('.') ? '' : '.');
}

const client = new Client(answered);

function askForSteps(s: State): void {
  const wanted = s.run && s.sizes && !s.steps && !s.over && !s.error && (s.tab === 'steps' || s.neuron);
  if (!wanted) return;
  const name = `${asked} ${s.layer} ${s.head}`;
  if (name === askedSteps) return;
  askedSteps = name;
  client.ask({ kind: 'steps', layer: s.layer, head: s.head });
}

store.subscribe((now, before) => {
  if (now.text !== before.text) {
    typedAt = performance.now();
    asked = client.ask({ kind: 'run', text: now.text });
  }
  if (now.run !== before.run || (before.steps && !now.steps)) askedSteps = '';
  askForSteps(now);
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
  const begun = performance.now();
  render(store.state);
  const view = document.getElementById('view');
  if (view) {
    const { clientWidth: width, clientHeight: height } = view;
    if (width !== store.state.view.width || height !== store.state.view.height) {
      store.state = { ...store.state, view: { width, height } };
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
    s.tab !== before.tab || s.step !== before.step || s.lock !== before.lock);
  if (chose && s.text === before.text) history.pushState(null, '', hash);
  else history.replaceState(null, '', hash);
}

function followLink(): void {
  const { headGiven: given, ...link } = fromHash(location.hash, data.text);
  if (!given && store.state.run) Object.assign(link, openingHead(store.state.run));
  store.update({ ...link, hover: null, steps: null });
  store.update(within(store.state));
  remembered = store.state;
}

let toastTimer = 0;
store.subscribe((now, before) => {
  if (!now.toast || now.toast === before.toast) return;
  clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => store.update({ toast: null }), 2200);
});

addEventListener('popstate', followLink);
addEventListener('resize', () => store.update({ windowWidth: innerWidth }));
systemDark.addEventListener('change', (event) => store.update({ systemDark: event.matches }));
$('dialog').addEventListener('close', () => store.update({ dialog: null }));
document.addEventListener('click', (event) => {
  const on = event.target as Element;
  if (store.state.popover && !on.closest('.pop, #display')) store.update({ popover: null });
});
listenToKeys(store, actions);
Object.defineProperty(window, 'cephalo', {
  value: { get state() { return store.state; }, get measured() { return { ...measured, inWorker: client.inWorker }; } },
});

schedule();
try {
  client.load({
    kind: 'load', engine: block('engine'), probe: data.probe?.scores ?? null,
    files: { name: data.model.name, config: block('model-config'), parameters: block('model-parameters'),
             vocab: block('model-vocab'), merges: block('model-merges') },
  });
  asked = client.ask({ kind: 'run', text: store.state.text });
} catch (error) {
  store.update({ error: inPlainWords((error as Error).message) });
}
