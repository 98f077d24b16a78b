// Draws the report of one run from the JSON in #run. Texts become text nodes, never markup:
// names, errors and definitions come from users.

const SCHEMA = 1;
const DASH = '–';
const NBSP = '\u00a0';
const MOST_STEPS = 240;

const STATES = [
  ['working', 'in the stage’s own code'],
  ['starved', 'waiting for input: look upstream'],
  ['blocked', 'the buffer behind it is full: look downstream'],
  ['turn', 'a finished item waits for earlier ones'],
  ['limit', 'held by a rate limit, a retry pause or another limit'],
].map(([name, meaning]) => ({ name, meaning }));

// From the ground up. Starved is what stays empty.
const STACKED = ['working', 'limit', 'turn', 'blocked'];

const ENDINGS = {
  finished: ['finished', 'good'],
  failed: ['failed', 'bad'],
  stopped: ['stopped early', 'none'],
  cancelled: ['cancelled', 'none'],
};

// ---- Numbers ----

const BYTES = [
  [1e15, 'PB'],
  [1e12, 'TB'],
  [1e9, 'GB'],
  [1e6, 'MB'],
  [1e3, 'kB'],
  [1, 'B'],
];
const TIMES = [
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
  [1e-9, 'ns'],
];
const PLAIN = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
  [1, ''],
];

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;
const last = (values) => values[values.length - 1];
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Makes a formatter show what is missing as a dash.
const orDash = (format) => (value) => (Number.isFinite(value) ? format(value) : DASH);

// Three significant digits, never an exponent; whole numbers without decimals.
function digits(value) {
  const exact = Number(value.toPrecision(12));
  if (Number.isInteger(exact) && Math.abs(exact) < 1000) return String(exact);
  const rounded = Number(value.toPrecision(3));
  const decimals = 2 - Math.floor(Math.log10(Math.abs(rounded)));
  return rounded.toFixed(clamp(decimals, 0, 9));
}

// `units` go from large to small; the last one also takes what is smaller.
function scaled(value, units) {
  if (value === 0) return '0';
  const size = Number(Math.abs(value).toPrecision(3));
  const [factor, unit] = units.find(([least]) => size >= least) ?? last(units);
  return digits(value / factor) + (unit && NBSP + unit);
}

function inWords(seconds) {
  const whole = Math.round(seconds);
  const [h, min, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}${NBSP}h ${min}${NBSP}min` : `${min}${NBSP}min ${s}${NBSP}s`;
}

function clock(seconds) {
  const two = (n) => String(n).padStart(2, '0');
  const whole = Math.floor(seconds);
  const [h, min, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}:${two(min)}:${two(s)}` : `${min}:${two(s)}`;
}

function wholePercent(share) {
  if (share > 0 && share < 0.005) return `<1${NBSP}%`;
  if (share > 0.995 && share < 1) return `>99${NBSP}%`;
  return `${Math.round(share * 100)}${NBSP}%`;
}

function grouped(value) {
  if (Math.abs(value) >= 1e9) return scaled(value, PLAIN);
  return value.toLocaleString('en').replace(/,/g, '\u202f');
}

const bytes = orDash((value) => scaled(value, BYTES));
const seconds = orDash((value) => (value < 120 ? scaled(value, TIMES) : inWords(value)));
const ms = orDash((value) => seconds(value / 1000));
const perSecond = orDash((value) => `${scaled(value, PLAIN)}/s`);
const bytesPerSecond = orDash((value) => `${scaled(value, BYTES)}/s`);
const amount = orDash((value) => scaled(value, PLAIN));
const count = orDash(grouped);
const percent = orDash(wholePercent);
const each = (ns, n) => (n > 0 ? ms(ns / n / 1e6) : DASH);
const shareOf = (part, whole) => (whole > 0 ? percent(part / whole) : DASH);

// The mean with up to two neighbours on each side: batches come in bursts.
const smooth = (values) => values.map((_, i) => mean(values.slice(Math.max(i - 2, 0), i + 3)));

// The least of 1, 2, 5, 10, 20, … that is not below `value`.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value * 0.999);
}

// ---- Elements ----

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.flat(2).filter((child) => child != null));
  return node;
}

const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

const swatch = (tone) => el('span', { class: `swatch tone-${tone}`, 'aria-hidden': 'true' });

// Entries are [term, text] or [term, text, tone].
function pairs(entries) {
  const rows = entries.map(([term, text, tone]) => [
    el('dt', {}, tone ? swatch(tone) : null, term),
    el('dd', {}, text),
  ]);
  return el('dl', {}, rows);
}

function facts(entries, look = '') {
  const known = entries.filter(([, text]) => text && text !== DASH);
  if (known.length === 0) return null;
  const items = known.map(([term, text]) => el('div', {}, el('dt', {}, term), el('dd', {}, text)));
  return el('dl', { class: `facts ${look}` }, items);
}

// Nothing if there is no content.
function section(title, note, ...content) {
  const parts = content.flat().filter((part) => part != null);
  if (parts.length === 0) return null;
  return el('section', {}, el('h2', {}, title), note && el('p', { class: 'note' }, note), parts);
}

function scroller(label, content) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label }, content);
}

// ---- The run ----

// Time cut into steps; the run's series become a value for each step.
class Timeline {
  constructor(times = []) {
    this.length = times.length;
    // Counters start at 0, at the start of the run.
    this.lead = times[0] > 0 ? 1 : 0;
    const edges = this.lead ? [0, ...times] : times;
    const stride = Math.ceil(edges.length / MOST_STEPS);
    this.cuts = edges.map((_, i) => i).filter((i) => i % stride === 0 || i === edges.length - 1);
    this.edges = this.cuts.map((i) => edges[i]);
    this.steps = last(this.edges) > this.edges[0] ? this.edges.length - 1 : 0;
  }

  has(values) {
    return this.steps > 0 && Array.isArray(values) && values.length === this.length;
  }

  growth(counter) {
    const at = this.cuts.map((i) => counter[i - this.lead] ?? 0);
    return at.slice(1).map((value, i) => Math.max(value - at[i], 0));
  }

  rate(counter) {
    return this.growth(counter).map((grown, i) => grown / this.lasting(i));
  }

  // The mean in each step of what was sampled at its end.
  level(samples) {
    const within = (i) =>
      samples.slice(this.cuts[i] + 1 - this.lead, this.cuts[i + 1] + 1 - this.lead);
    return Array.from({ length: this.steps }, (_, i) => mean(within(i).map(Number)));
  }

  lasting(step) {
    return this.edges[step + 1] - this.edges[step];
  }
}

function completeStage(stage, series) {
  return {
    ...stage,
    // Of a stage that makes no calls nothing is known.
    service: stage.histogram?.length ? stage.service_ms : {},
    histogram: stage.histogram ?? [],
    buffer: stage.buffer ?? {},
    traffic: stage.traffic ?? {},
    device: stage.device ?? {},
    slowest: stage.slowest ?? [],
    failures: stage.failures ?? [],
    series: series ?? {},
  };
}

function complete(run) {
  const series = run.series ?? {};
  const report = run.report ?? {};
  const stages = report.stages ?? [];
  const timeline = new Timeline(series.t ?? []);
  return {
    ...run,
    report,
    series,
    timeline,
    axis: timeline.steps > 0 ? timeAxis(timeline.edges) : null,
    verdict: report.verdict ?? {},
    stages: stages.map((stage, i) => completeStage(stage, series.stages?.[i])),
    stalls: report.stalls ?? [],
    pool: report.buffers ?? {},
    process: report.process ?? {},
    machine: run.machine ?? {},
  };
}

const handled = (stage) =>
  stage.kind === 'source' ? stage.items : (stage.items_in ?? stage.items);

const stageRate = (stage, run) => handled(stage) / run.report.seconds;

function dominant(stage) {
  const names = STATES.map(({ name }) => name);
  const most = names.reduce((a, b) => (stage[b] > stage[a] ? b : a));
  return stage[most] > 0 ? most : 'none';
}

// What people see of the wait of the consumer, whom the verdict calls "you".
function consumer({ report }) {
  const waited = report.waited_share;
  if (!Number.isFinite(waited)) return null;
  // In what it takes at a time, as the stages before it count.
  const rate = (report.batches || report.items) / report.seconds;
  return { waited, used: 1 - waited, rate, couldDo: rate / (1 - waited) };
}

// ---- Plots ----

const tip = el('div', { class: 'tip', role: 'status' });

function placeTip({ left, top, width }, x) {
  const at = left + x * width;
  const right = at + 14;
  const fits = right + tip.offsetWidth + 8 <= document.documentElement.clientWidth;
  tip.style.left = `${Math.max(fits ? right : at - 14 - tip.offsetWidth, 8)}px`;
  tip.style.top = `${clamp(top, 8, window.innerHeight - tip.offsetHeight - 8)}px`;
}

// Shows the values of one step, and the crosshair in all plots that share the axis.
function point(area, kind, strip, step) {
  const x = mean(strip.spans[step]);
  document.body.dataset.cross = kind;
  document.body.style.setProperty('--cross', `${x * 100}%`);
  tip.replaceChildren(
    el('b', {}, strip.name),
    el('p', {}, strip.heading(step)),
    pairs(strip.rows(step)),
  );
  placeTip(area.getBoundingClientRect(), x);
}

function unpoint() {
  delete document.body.dataset.cross;
}

function stepUnder(area, spans, clientX) {
  const { left, width } = area.getBoundingClientRect();
  const x = (clientX - left) / width;
  const after = spans.findIndex(([, end]) => end >= x);
  return after < 0 ? spans.length - 1 : after;
}

function listen(area, kind, strip) {
  let step = 0;
  const show = (next) => {
    step = clamp(next, 0, strip.spans.length - 1);
    point(area, kind, strip, step);
  };
  area.addEventListener('pointermove', (event) =>
    show(stepUnder(area, strip.spans, event.clientX)),
  );
  area.addEventListener('pointerleave', unpoint);
  area.addEventListener('focus', () => area.matches(':focus-visible') && show(step));
  area.addEventListener('blur', unpoint);
  area.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    show(step + by);
  });
}

// A rectangle for each step, in a drawing of 1000 by 100.
function outline(spans, low, high) {
  const y = (value) => (100 - 100 * Math.min(value, 1)).toFixed(2);
  const rectangle = ([x0, x1], i) =>
    high[i] > low[i]
      ? `M${(x0 * 1000).toFixed(1)} ${y(low[i])}V${y(high[i])}H${(x1 * 1000).toFixed(1)}V${y(low[i])}z`
      : '';
  return spans.map(rectangle).join('');
}

function areas({ spans, layers, top }) {
  let low = spans.map(() => 0);
  return layers.map(({ tone, values }) => {
    const high = values.map((value, i) => low[i] + value / top);
    const area = svg('path', { class: `area tone-${tone}`, d: outline(spans, low, high) });
    low = high;
    return area;
  });
}

const upright = (look, x) => svg('path', { class: look, d: `M${x * 1000} 0V100` });

function drawing(axis, strip) {
  const grid = axis.ticks.map(([x]) => upright('grid', x));
  const marks = (strip.marks ?? []).map((x) => upright('mark', x));
  const box = { viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' };
  return svg('svg', box, areas(strip), grid, marks);
}

// A strip: name, detail, summary, spans, layers, top, high (its text), heading, rows, marks.
function plot(axis, strip) {
  const look = `plot ${strip.look ?? ''}`;
  const label = `${strip.name}: ${strip.summary}`;
  const area = el(
    'div',
    { class: look, tabindex: 0, role: 'img', 'aria-label': label },
    drawing(axis, strip),
    el('div', { class: 'cross' }),
  );
  listen(area, axis.kind, strip);
  return el(
    'figure',
    { class: 'strip' },
    el('figcaption', {}, el('b', {}, strip.name), el('small', {}, strip.detail)),
    area,
    el(
      'div',
      { class: 'scale', 'aria-hidden': 'true' },
      el('span', {}, strip.high),
      el('span', {}, '0'),
    ),
  );
}

function plots(axis, strips) {
  const drawn = strips.filter((strip) => strip != null);
  if (drawn.length === 0) return null;
  const ticks = axis.ticks.map(([x, text]) => el('span', { style: `left:${x * 100}%` }, text));
  return el(
    'div',
    { class: `strips on-${axis.kind}` },
    drawn.map((strip) => plot(axis, strip)),
    el('div', { class: 'axis', 'aria-hidden': 'true' }, ticks),
  );
}

const TIME_STEPS = [
  10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
];

function timeStep(span) {
  const least = span / 8;
  if (least <= 5) return roundUp(least);
  return TIME_STEPS.find((step) => step >= least) ?? Math.ceil(least / 86400) * 86400;
}

function timeAxis(edges) {
  const [start, end] = [edges[0], last(edges)];
  const x = (at) => (at - start) / (end - start);
  const text = end < 120 ? seconds : clock;
  const step = timeStep(end - start);
  const first = Math.ceil(start / step);
  const ticks = Array.from(
    { length: Math.floor(end / step) - first + 1 },
    (_, i) => (first + i) * step,
  );
  return {
    kind: 'time',
    ticks: ticks.map((at) => [x(at), text(at)]),
    spans: edges.slice(1).map((edge, i) => [x(edges[i]), x(edge)]),
    heading: (i) => `${text(edges[i])} – ${text(edges[i + 1])}`,
  };
}

// One value over time.
function trace(axis, { name, detail, values, format, top, high }) {
  const most = Math.max(...values);
  const ceiling = top ?? roundUp(most);
  return {
    name,
    detail,
    summary: `over time, mean ${format(mean(values))}, highest ${format(most)}`,
    spans: axis.spans,
    heading: axis.heading,
    layers: [{ tone: 'trace', values }],
    top: ceiling,
    high: high ?? format(ceiling),
    rows: (i) => [[name, format(values[i]), 'trace']],
  };
}

// Shares over time that add up to 1; what is not stacked stays empty.
function sharesStrip(axis, { name, detail, shares, stacked }) {
  const average = shares.map((share) => `${share.name} ${percent(mean(share.values))}`);
  return {
    name,
    detail,
    summary: `shares over time, ${average.join(', ')}`,
    look: 'share',
    spans: axis.spans,
    heading: axis.heading,
    layers: stacked.map((wanted) => shares.find((share) => share.name === wanted)),
    top: 1,
    high: percent(1),
    rows: (i) => shares.map((share) => [share.name, percent(share.values[i]), share.tone]),
  };
}

// ---- Head and verdict ----

function masthead(run) {
  const started = String(run.started ?? '')
    .replace('T', ' ')
    .replace('Z', ' UTC');
  return el(
    'div',
    { class: 'masthead' },
    el('span', {}, el('b', {}, 'Forebay'), ' run report'),
    el('span', {}, el('span', { class: 'code' }, run.run ?? ''), started && ` · ${started}`),
  );
}

function titleLine({ pipeline, ended }) {
  const [text, tone] = ENDINGS[ended] ?? ['running when this was written', 'none'];
  return el(
    'div',
    { class: 'title' },
    el('h1', {}, pipeline ?? 'unnamed'),
    el('p', { class: `ended tone-${tone}` }, swatch(tone), text),
  );
}

function totals(report) {
  const ifAny = (value) => (value > 0 ? count(value) : null);
  return facts([
    [report.ended ? 'duration' : 'so far', seconds(report.seconds)],
    ['items', count(report.items)],
    ['batches', ifAny(report.batches)],
    ['delivered', bytes(report.bytes)],
    ['item rate', perSecond(report.items_per_s)],
    ['data rate', bytesPerSecond(report.bytes / report.seconds)],
    ['skipped after errors', ifAny(report.skipped)],
    ['abandoned under way', ifAny(report.abandoned)],
  ]);
}

const alarm = (text) => el('p', { class: 'error' }, text);

function header(run) {
  const { report, schema } = run;
  const newer = `The data has schema ${schema}, this page knows ${SCHEMA}: figures may be missing.`;
  return el(
    'header',
    {},
    masthead(run),
    titleLine(report),
    report.error ? alarm(report.error) : null,
    schema > SCHEMA ? alarm(newer) : null,
    totals(report),
  );
}

function bar(shares) {
  const known = shares.filter(({ share }) => share > 0);
  const label = known.map(({ name, share }) => `${name} ${percent(share)}`).join(', ');
  const parts = known.map(({ tone, share }) =>
    el('span', { class: `tone-${tone}`, style: `width:${share * 100}%` }),
  );
  return el('div', { class: 'bar', role: 'img', 'aria-label': label || 'no time yet' }, parts);
}

const usedBar = ({ used, waited }) =>
  bar([
    { name: 'used', tone: 'working', share: used },
    { name: 'waited', tone: 'starved', share: waited },
  ]);

function waiting(run) {
  const you = consumer(run);
  if (!you) return null;
  const end = (name, tone, share) =>
    el(
      'span',
      {},
      swatch(tone),
      `${name} ${percent(share)} (${seconds(share * run.report.seconds)})`,
    );
  return el(
    'div',
    { class: 'waited' },
    el('p', {}, `You waited ${percent(you.waited)} of the time`),
    usedBar(you),
    el(
      'p',
      { class: 'ends' },
      end('used', 'working', you.used),
      end('waited', 'starved', you.waited),
    ),
  );
}

function gainText({ change, items_per_s: rate }, now) {
  const more = percent(rate / now - 1);
  return `${change}: ${perSecond(rate)}${more === DASH ? '' : ` (+${more})`}`;
}

function verdict(run) {
  const { sentence, cause, advice, gain } = run.verdict;
  if (!sentence) return null;
  const tone =
    { consumer: 'none', unknown: 'none', turn: 'turn', limit: 'limit', retries: 'limit' }[cause] ?? 'working';
  const hints = [
    advice && ['Try', advice],
    gain && ['Gain', gainText(gain, run.report.items_per_s)],
  ].filter(Boolean);
  return el(
    'section',
    { class: `verdict tone-${tone}`, 'aria-label': 'Verdict' },
    el(
      'div',
      {},
      el('h2', { class: 'sentence' }, sentence),
      hints.length > 0 ? pairs(hints) : null,
    ),
    waiting(run),
  );
}

// ---- Chain ----

function legend() {
  const entry = ({ name, meaning }) => el('li', {}, swatch(name), el('b', {}, name), ` ${meaning}`);
  return el('ul', { class: 'legend' }, STATES.map(entry));
}

const stageShares = (stage) => STACKED.map((name) => ({ name, tone: name, share: stage[name] }));

// The two largest states; the rest is in the table.
function shareText(stage) {
  const known = STATES.map(({ name }) => [name, stage[name]]).filter(([, share]) => share >= 0.005);
  known.sort(([, a], [, b]) => b - a);
  return known
    .slice(0, 2)
    .map(([name, share]) => `${name}${NBSP}${percent(share)}`)
    .join(', ');
}

function card({ title, kind, tone, guilty, time, text, rates }) {
  return el(
    'div',
    { class: `card tone-${tone} ${guilty ? 'guilty' : ''}` },
    guilty ? el('span', { class: 'badge' }, 'bottleneck') : null,
    el('h3', {}, title),
    el('p', { class: 'kind' }, kind),
    time,
    el('p', { class: 'shares' }, text),
    pairs(rates),
  );
}

function crew({ kind, workers }) {
  return `${kind}, ${count(workers)} ${workers === 1 ? 'worker' : 'workers'}`;
}

function stageCard(stage, run) {
  return card({
    title: stage.id,
    kind: crew(stage),
    tone: dominant(stage),
    guilty: run.verdict.stage === stage.id,
    time: bar(stageShares(stage)),
    text: shareText(stage),
    rates: [
      ['items', perSecond(stageRate(stage, run))],
      ['could do', perSecond(stage.could_do_per_s)],
      ['median', ms(stage.service.p50)],
      ['p99', ms(stage.service.p99)],
    ],
  });
}

function consumerCard(run) {
  const you = consumer(run);
  if (!you) return null;
  return card({
    title: 'you',
    kind: 'consumer',
    tone: you.used >= you.waited ? 'working' : 'starved',
    guilty: run.verdict.stage === 'you',
    time: usedBar(you),
    text: `used${NBSP}${percent(you.used)}, waited${NBSP}${percent(you.waited)}`,
    rates: [
      ['items', perSecond(you.rate)],
      ['could do', perSecond(you.couldDo)],
    ],
  });
}

// The fuller of items and bytes, as a share of its bound.
function fullness(items, held, { items_max: itemsMax, bytes_max: bytesMax }) {
  return Math.max(itemsMax > 0 ? items / itemsMax : 0, bytesMax > 0 ? held / bytesMax : 0);
}

function link({ buffer }) {
  const share = clamp(buffer.items_mean / buffer.items_max || 0, 0, 1);
  const text =
    `buffer: ${amount(buffer.items_mean)} of ${count(buffer.items_max)} on average, ` +
    `full ${percent(buffer.full_share)}`;
  const level = el('i', { style: `height:${share * 100}%` });
  return el(
    'div',
    { class: 'link', title: text },
    el('div', { class: 'tank', 'aria-hidden': 'true' }, level),
    el('span', {}, text),
  );
}

function chain(run) {
  if (run.stages.length === 0) return null;
  const you = consumerCard(run);
  const stages = run.stages.map((stage) => el('li', {}, stageCard(stage, run), link(stage)));
  return section(
    'Stages',
    'Each bar is the time of a stage’s workers. The gauges show the mean fill of the buffers.',
    legend(),
    el(
      'ol',
      { class: 'chain', style: `--cards:${stages.length + 1}` },
      stages,
      you && el('li', {}, you),
    ),
  );
}

// ---- Tables ----

// Columns are [title, look]; cells are texts.
function table(columns, bodies) {
  const head = columns.map(([title, look = '']) => el('th', { scope: 'col', class: look }, title));
  return el('table', {}, el('thead', {}, el('tr', {}, head)), bodies);
}

// Rows of one stage, with its name once, before them.
function stageRows(columns, stage, rows) {
  const name = el('th', { scope: 'rowgroup', rowspan: rows.length }, stage.id);
  const line = (cells, i) =>
    el(
      'tr',
      {},
      i === 0 ? name : null,
      cells.map((text, k) => el('td', { class: columns[k + 1][1] ?? '' }, text)),
    );
  return el('tbody', {}, rows.map(line));
}

function stageTable(run, label, columns, rowsOf) {
  const bodies = run.stages
    .map((stage) => [stage, rowsOf(stage)])
    .filter(([, rows]) => rows.length > 0)
    .map(([stage, rows]) => stageRows(columns, stage, rows));
  return bodies.length > 0 ? scroller(label, table(columns, bodies)) : null;
}

const FIGURES = [
  [
    'Flow',
    [
      ['kind', (s) => s.kind],
      ['workers', (s) => count(s.workers)],
      ['items in', (s) => count(s.items_in)],
      ['items out', (s) => count(s.items)],
      ['bytes out', (s) => bytes(s.bytes)],
      ['item rate', (s, run) => perSecond(stageRate(s, run))],
      ['could do', (s) => perSecond(s.could_do_per_s)],
      ['data rate', (s, run) => bytesPerSecond(s.bytes / run.report.seconds)],
    ],
  ],
  [
    'Worker time',
    [
      ...STATES.map(({ name }) => [name, (s) => percent(s[name])]),
      ['after its end', (s) => (s.ended > 0 ? percent(s.ended) : null)],
      ['working time on a core', (s) => percent(s.on_core)],
    ],
  ],
  [
    'Service time',
    [
      ['median', (s) => ms(s.service.p50)],
      ['p90', (s) => ms(s.service.p90)],
      ['p99', (s) => ms(s.service.p99)],
      ['longest', (s) => ms(s.service.max)],
      ['mean', (s) => ms(s.service.mean)],
    ],
  ],
  [
    'Calls',
    [
      ['attempts', (s) => count(s.attempts)],
      ['errors', (s) => count(s.errors)],
      ['retries', (s) => count(s.retries)],
      ['items skipped', (s) => count(s.skipped)],
    ],
  ],
  [
    'Buffer behind it',
    [
      ['items on average', (s) => amount(s.buffer.items_mean)],
      ['items at the end', (s) => count(s.buffer.items)],
      ['items at most', (s) => count(s.buffer.items_max)],
      ['bytes at the end', (s) => bytes(s.buffer.bytes)],
      ['bytes at most', (s) => bytes(s.buffer.bytes_max)],
      ['time full', (s) => percent(s.buffer.full_share)],
      ['time empty', (s) => percent(s.buffer.empty_share)],
    ],
  ],
  [
    'Traffic',
    [
      ['requests', (s) => count(s.traffic.requests)],
      ['bytes received', (s) => bytes(s.traffic.bytes)],
      ['bytes decoded for each that a window uses', (s) => amplification(s.traffic)],
      ['throttled', (s) => count(s.traffic.throttled)],
    ],
  ],
  [
    'On its device',
    [
      ['batches copied', (s) => count(s.device.copies)],
      ['bytes copied', (s) => bytes(s.device.copied_bytes)],
      ['a copy took', (s) => each(s.device.copy_ns, s.device.copies)],
      ['of that beside kernels', (s) => shareOf(s.device.overlap_ns, s.device.copy_ns)],
      ['tensors pinned by a copy', (s) => count(s.device.pageable_copies)],
      ['batches in kernels', (s) => count(s.device.kernel_batches)],
      ['kernels of a batch took', (s) => each(s.device.kernel_ns, s.device.kernel_batches)],
    ],
  ],
];

function amplification({ fetched, used }) {
  return used > 0 ? (fetched / used).toFixed(2) : null;
}

function figureRows(run, [group, rows]) {
  const lines = rows
    .map(([title, text]) => [title, run.stages.map((stage) => text(stage, run) ?? DASH)])
    .filter(([, cells]) => cells.some((text) => text !== DASH))
    .map(([title, cells]) =>
      el(
        'tr',
        {},
        el('th', { scope: 'row' }, title),
        cells.map((text) => el('td', { class: 'num' }, text)),
      ),
    );
  if (lines.length === 0) return null;
  const head = el(
    'tr',
    { class: 'group' },
    el('th', { scope: 'rowgroup' }, group),
    run.stages.map(() => el('td')),
  );
  return el('tbody', {}, head, lines);
}

function figures(run) {
  if (run.stages.length === 0) return null;
  const columns = [['stage'], ...run.stages.map((stage) => [stage.id, 'num'])];
  const all = scroller(
    'All figures',
    table(
      columns,
      FIGURES.map((group) => figureRows(run, group)),
    ),
  );
  all.classList.add('figures');
  return section('All figures', null, all);
}

function slowest(run) {
  const columns = [
    ['stage'],
    ['item'],
    ['name', 'wide'],
    ['took', 'num'],
    ['attempt', 'num'],
    ['began at', 'num'],
  ];
  const rows = (stage) =>
    stage.slowest.map((call) => [
      call.item,
      call.name ?? DASH,
      ms(call.ms),
      count(call.attempt),
      seconds(call.at_s),
    ]);
  return section(
    'Slowest calls',
    'The longest calls of each stage; the time is from the start of the run.',
    stageTable(run, 'Slowest calls', columns, rows),
  );
}

function failures(run) {
  const columns = [['stage'], ['error', 'wide'], ['count', 'num'], ['first item', 'wide']];
  const rows = (stage) =>
    stage.failures.map(({ error, count: n, example }) => [error, count(n), example ?? DASH]);
  return section(
    'Errors',
    'Failed calls by kind; texts that differ only in numbers count as the same.',
    stageTable(run, 'Errors', columns, rows),
  );
}

function stalls(run) {
  if (run.stalls.length === 0) return null;
  const items = run.stalls.map(({ chain }) => el('li', {}, chain.join(' ← ')));
  return section(
    'Stalls',
    'Times when nothing moved: who waited for whom, from your loop on.',
    el('ul', {}, ...items),
  );
}

function knobs(run) {
  const rows = (stage) => (stage.options ? [[stage.kind, stage.options]] : []);
  return section(
    'Settings',
    null,
    stageTable(run, 'Settings', [['stage'], ['kind'], ['options', 'wide']], rows),
  );
}

// ---- Over time ----

function stateStrip({ timeline, axis }, stage) {
  const { states } = stage.series;
  if (!timeline.has(states)) return null;
  const grown = STATES.map((_, k) => timeline.growth(states.map((row) => row[k])));
  const whole = axis.spans.map((_, i) => sum(grown.map((values) => values[i])));
  const shares = STATES.map(({ name }, k) => ({
    name,
    tone: name,
    values: grown[k].map((value, i) => (whole[i] > 0 ? value / whole[i] : 0)),
  }));
  return sharesStrip(axis, {
    name: stage.id,
    detail: crew(stage),
    shares,
    stacked: STACKED,
  });
}

function statesOverTime(run) {
  const strips = run.stages.map((stage) => stateStrip(run, stage));
  return section(
    'States over time',
    'Shares of each stage’s worker time. What stays empty is starved.',
    plots(run.axis, strips),
  );
}

function rateStrip({ timeline, axis }, name, counter, format, average) {
  if (!timeline.has(counter)) return null;
  return trace(axis, {
    name,
    detail: `mean ${format(average)}`,
    values: smooth(timeline.rate(counter)),
    format,
  });
}

function waitStrip(run) {
  const { timeline, axis, series } = run;
  if (!timeline.has(series.waited_s)) return null;
  const waited = timeline.rate(series.waited_s).map((share) => Math.min(share, 1));
  return sharesStrip(axis, {
    name: 'you',
    detail: `waited ${percent(run.report.waited_share)}`,
    shares: [
      { name: 'used', tone: 'working', values: waited.map((share) => 1 - share) },
      { name: 'waited', tone: 'starved', values: waited },
    ],
    stacked: ['used'],
  });
}

function throughput(run) {
  const { report, series } = run;
  return section(
    'Throughput and waiting',
    'What was delivered, as a moving mean. What stays empty in the last strip is your waiting.',
    plots(run.axis, [
      rateStrip(run, 'items', series.items, perSecond, report.items_per_s),
      rateStrip(run, 'data', series.bytes, bytesPerSecond, report.bytes / report.seconds),
      waitStrip(run),
    ]),
  );
}

function bufferStrip({ timeline, axis }, stage, next) {
  const { buffer_items: itemSamples, buffer_bytes: byteSamples } = stage.series;
  if (!timeline.has(itemSamples)) return null;
  const { buffer } = stage;
  const items = timeline.level(itemSamples);
  const held = timeline.has(byteSamples) ? timeline.level(byteSamples) : items.map(() => 0);
  const values = items.map((n, i) => fullness(n, held[i], buffer));
  const strip = trace(axis, {
    name: `${stage.id} → ${next}`,
    detail: `full ${percent(buffer.full_share)}, empty ${percent(buffer.empty_share)}`,
    values,
    format: percent,
    top: 1,
    high: 'full',
  });
  const rows = (i) => [
    ['full', percent(values[i]), 'trace'],
    ['items', `${amount(items[i])} of ${count(buffer.items_max)}`],
    ['bytes', `${bytes(held[i])} of ${bytes(buffer.bytes_max)}`],
  ];
  return { ...strip, rows };
}

function poolNote({ pool_hits: hits, pool_misses: misses }) {
  if (!(hits + misses > 0)) return null;
  return el(
    'p',
    { class: 'note' },
    `Buffer pools: ${count(hits)} buffers recycled, ${count(misses)} allocated ` +
      `(${percent(hits / (hits + misses))} recycled).`,
  );
}

function buffers(run) {
  const strips = run.stages.map((stage, i) =>
    bufferStrip(run, stage, run.stages[i + 1]?.id ?? 'you'),
  );
  return section(
    'Buffers',
    'How full the buffer behind each stage was: by items or by bytes, whichever was fuller.',
    plots(run.axis, strips),
    poolNote(run.pool),
  );
}

function memoryStrip({ timeline, axis, series, process }) {
  if (!timeline.has(series.rss) || !series.rss.some((value) => value > 0)) return null;
  return trace(axis, {
    name: 'memory',
    detail: `highest ${bytes(process.rss_max)}`,
    values: timeline.level(series.rss),
    format: bytes,
  });
}

function cpuStrip({ timeline, axis, series, process, machine }) {
  if (!timeline.has(series.cpu_s) || !series.cpu_s.some((value) => value > 0)) return null;
  const cores = process.cores ?? machine.cores;
  return trace(axis, {
    name: 'cores busy',
    detail: `mean ${amount(process.cpu_share * cores)} of ${count(cores)}`,
    values: timeline.rate(series.cpu_s),
    format: amount,
    top: cores > 0 ? cores : undefined,
  });
}

function resources(run) {
  return section('Memory and cores', null, plots(run.axis, [memoryStrip(run), cpuStrip(run)]));
}

// ---- Service times ----

// Buckets come as upper bounds and empty ones may be left out, so a bucket begins where the one
// before it ends unless that is further than the narrowest bucket is wide.
function buckets(histogram) {
  const known = histogram.filter(([upper]) => upper > 0);
  const ratios = known.slice(1).map(([upper], i) => upper / known[i][0]);
  const ratio = Math.min(2, ...ratios.filter((value) => value > 1));
  const begin = (upper, before) => (upper / before <= ratio ** 1.5 ? before : upper / ratio);
  return known.map(([upper, calls], i) => ({
    low: begin(upper, known[i - 1]?.[0]),
    high: upper,
    calls,
  }));
}

function serviceAxis(all) {
  const low = Math.min(...all.map((bucket) => bucket.low));
  const high = Math.max(...all.map((bucket) => bucket.high));
  const x = (at) => Math.log(at / low) / Math.log(high / low);
  const powers = Array.from({ length: 19 }, (_, i) => 10 ** (i - 9));
  const steps = high / low > 30 ? [1] : [1, 2, 5];
  const ticks = powers
    .flatMap((power) => steps.map((step) => step * power))
    .filter((at) => at >= low && at <= high);
  return { kind: 'service', x, ticks: ticks.map((at) => [x(at), ms(at)]) };
}

function serviceStrip({ x }, { id, service, found }) {
  const calls = found.map((bucket) => bucket.calls);
  const [most, total] = [Math.max(...calls), sum(calls)];
  const upTo = (i) => sum(calls.slice(0, i + 1)) / total;
  const times = `median${NBSP}${ms(service.p50)}, p99${NBSP}${ms(service.p99)}`;
  return {
    name: id,
    detail: times,
    summary: `service times of ${count(total)} calls, ${times}`,
    spans: found.map(({ low, high }) => [x(low), x(high)]),
    heading: (i) => `${ms(found[i].low)} – ${ms(found[i].high)}`,
    // A single call must be seen beside thousands.
    layers: [{ tone: 'trace', values: calls.map((n) => (n > 0 ? Math.max(n, most * 0.03) : 0)) }],
    top: most,
    high: amount(most),
    marks: [service.p50, service.p99].filter((at) => at > 0).map(x),
    rows: (i) => [
      ['calls', count(calls[i]), 'trace'],
      ['this long or shorter', percent(upTo(i))],
    ],
  };
}

function serviceTimes(run) {
  const stages = run.stages
    .map((stage) => ({ ...stage, found: buckets(stage.histogram) }))
    .filter(({ found }) => found.some((bucket) => bucket.calls > 0));
  if (stages.length === 0) return null;
  const axis = serviceAxis(stages.flatMap(({ found }) => found));
  return section(
    'Service times',
    'Calls by how long they took, waits left out, on a logarithmic axis. Lines: median and p99.',
    plots(
      axis,
      stages.map((stage) => serviceStrip(axis, stage)),
    ),
  );
}

// ---- Surroundings ----

function surroundings({ machine, process, report, version, seed }) {
  return section(
    'Machine and run',
    null,
    facts(
      [
        ['processor', machine.cpu],
        ['cores', count(machine.cores)],
        ['memory', bytes(machine.memory)],
        ['system', machine.os],
        ['memory used at most', bytes(process.rss_max)],
        ['cores used', percent(process.cpu_share)],
        ['minor page faults', count(process.minor_faults)],
        ['items read', count(report.read)],
        ['seed', seed == null ? null : String(seed)],
        ['order fingerprint', report.fingerprint],
        ['forebay', version],
      ],
      'quiet',
    ),
  );
}

function definition(run) {
  if (!run.definition) return null;
  return section(
    'Definition',
    null,
    el(
      'details',
      {},
      el('summary', {}, 'The pipeline as it was written'),
      el('pre', { tabindex: 0 }, run.definition),
    ),
  );
}

const PARTS = [
  header,
  verdict,
  chain,
  figures,
  statesOverTime,
  throughput,
  buffers,
  serviceTimes,
  slowest,
  failures,
  stalls,
  resources,
  knobs,
  surroundings,
  definition,
];

function draw(page, text) {
  const run = complete(JSON.parse(text));
  const parts = PARTS.map((part) => part(run)).filter((part) => part != null);
  const footer = el(
    'footer',
    {},
    'Written by Forebay. This file holds all that it shows and loads nothing.',
  );
  page.replaceChildren(...parts, footer);
  document.body.append(tip);
}

draw(document.getElementById('page'), document.getElementById('run').textContent);
