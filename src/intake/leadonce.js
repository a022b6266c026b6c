// Sends a form once, however often it is pressed or the network fails. Without this script the form's plain POST works.
// <form action="…/v1/intake/SOURCE" method="post" data-thanks="/thanks" data-volatile="page_time">
// Events on the form: leadonce:done, leadonce:failed; preventDefault() keeps the script from what it would do next.
(() => {
  const FIELD = '_submission_id', TRIES = 6, memory = {}, busy = new WeakSet();
  // Kept in sessionStorage until success, and in the page for two minutes more: pressing again is no new enquiry.
  const load = k => { try { return JSON.parse(sessionStorage[k]); } catch { return memory[k]; } };
  const save = (k, v) => { memory[k] = v; try { sessionStorage[k] = JSON.stringify(v); } catch {} };
  const done = k => { try { delete sessionStorage[k]; } catch {} memory[k].end = Date.now() + 12e4; };
  const hex = n => n.toString(16).padStart(2, '0');
  const uuid7 = () => {
    const b = crypto.getRandomValues(new Uint8Array(10));
    b[0] = b[0] & 15 | 112;
    b[2] = b[2] & 63 | 128;
    return (Date.now().toString(16).padStart(12, '0') + Array.from(b, hex).join('')).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  };
  // What the visitor filled in, as a short sum: the content itself is not kept in the browser.
  const sum = text => text.length + '.' + [...text].reduce((h, c) => Math.imul(h ^ c.codePointAt(), 16777619), 40389);
  const tell = (form, what, detail) =>
    form.dispatchEvent(new CustomEvent('leadonce:' + what, { bubbles: true, cancelable: true, detail }));

  // Every try bears the same id, so the gateway makes one lead of them. Nothing here needs a preflight.
  const send = async (action, body) => {
    for (let tried = 1, r; ; tried++) {
      try { r = await fetch(action, { method: 'POST', body, credentials: 'omit' }); } catch { r = null; }
      if (r && r.status != 429 && r.status != 503 || tried == TRIES) return r;
      const told = r && r.headers.get('Retry-After') * 1e3 || 0, own = 2 ** tried * (400 + Math.random() * 200);
      await new Promise(next => setTimeout(next, Math.min(Math.max(told, own), 3e4)));
    }
  };

  const submit = async (form, button) => {
    const action = form.getAttribute('action'), data = new FormData(form, button), thanks = form.dataset.thanks;
    data.delete(FIELD);
    const isFile = v => typeof v != 'string', skip = (form.dataset.volatile || '').split(' ');
    const fields = [...data].filter(([, v]) => !isFile(v) || v.name);
    const key = ['leadonce', location.pathname, action, [...document.forms].indexOf(form)].join(' ');
    const now = sum(JSON.stringify(fields.filter(([n]) => !skip.includes(n)).map(([n, v]) => isFile(v) ? [n, v.name, v.size, v.lastModified] : [n, v])));
    // The same content keeps its id, after a reload too; changed content is another submission.
    const last = load(key), id = last && last.now == now && !(last.end < Date.now()) ? last.id : uuid7();
    save(key, { now, id });
    fields.push([FIELD, id]);
    const body = fields.some(([, v]) => isFile(v)) ? new FormData() : new URLSearchParams();
    fields.forEach(([n, v]) => body.append(n, v));
    const r = await send(action, body);
    if (r && r.ok) {
      done(key);
      const answer = await r.json().catch(() => ({})), to = thanks || answer.thank_you_url;
      if (tell(form, 'done', answer) && to && new URL(to, location).protocol.startsWith('http')) location = to;
    } else if (tell(form, 'failed', { status: r ? r.status : 0 })) {
      // The last resort is the form's own way, with the same id: had a try arrived unseen, this is its replay.
      const field = form.querySelector(`[name=${FIELD}]`) || form.appendChild(document.createElement('input'));
      Object.assign(field, { type: 'hidden', name: FIELD, value: id });
      HTMLFormElement.prototype.submit.call(form);
    }
  };

  addEventListener('submit', async event => {
    const form = event.target, button = event.submitter;
    const ours = /\/v1\/intake\//.test(form.getAttribute('action')) || 'leadonce' in form.dataset;
    if (!ours || event.defaultPrevented) return;
    event.preventDefault();
    if (busy.has(form)) return;
    busy.add(form);
    const sent = submit(form, button);
    if (button) button.disabled = true;
    await sent.finally(() => { busy.delete(form); if (button) button.disabled = false; });
  });
})();
