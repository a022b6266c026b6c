// The console's words, in English and Russian: by the browser's language, or by choice.

export const LANGUAGES = [["en", "English"], ["ru", "Русский"]];

const EN = {
  "overview": "Overview", "reviews": "Reviews", "operations": "Operations", "deliveries": "Refused deliveries", "audit": "Audit", "people": "People and tokens", "api": "API",
  "menu": "Pages", "skip": "Skip to content", "language": "Language", "theme": "Colours", "theme.auto": "as the system", "theme.light": "light", "theme.dark": "dark",
  "sign_in": "Sign in", "sign_in.by_token": "Sign in with a token", "sign_in.wrong": "Name and password, or the token, are not known here.",
  "sign_in.token_hint": "The first token: leadonce token create --role admin --name …", "sign_out": "Sign out", "sign_out_everywhere": "Sign out everywhere", "signed_out": "The session is over; sign in again.",
  "name": "Name", "password": "Password", "password.new": "New password", "password.hint": "At least 12 characters; a few words are easy to keep in mind.", "token": "Token",
  "first.title": "The first administrator", "first.text": "Nobody can sign in here yet. Choose the name and password of the first administrator; this link works once.", "first.make": "Make and sign in",
  "role": "Role", "role.viewer": "viewer", "role.operator": "operator", "role.admin": "admin",
  "fault.title": "This page cannot be shown", "fault.network": "The gateway does not answer. This page tries again by itself.", "fault.program": "The page has a fault; load it again.", "nothing_here": "There is nothing at this address.",
  "needs.nothing": "Nothing needs you now.", "needs.title": "Needs you now", "needs.suspended": "Destination suspended:", "needs.waiting": "{count} waiting",
  "states": "Operations by state", "state": "State", "state.received": "received", "state.in_progress": "in progress", "state.completed": "completed", "state.failed_terminal": "failed", "state.needs_review": "needs review",
  "oldest": "oldest", "absorbed": "repeats absorbed", "refused": "refused", "last_day": "last 24 hours", "chart.states": "Leads per hour by outcome", "chart.sources": "Leads per hour by source", "chart.table": "As a table", "hour": "Hour",
  "destinations": "Destinations", "destination": "Destination", "destination.active": "active", "destination.throttled": "slowed down", "destination.suspended": "suspended",
  "destination.resume": "Resume", "destination.suspend": "Suspend", "destination.suspend.what": "No call leaves for it until it is resumed; its leads wait, none is lost.", "destination.resume.done": "Resumed:", "destination.suspend.done": "Suspended:",
  "since": "since", "waiting": "Waiting", "share": "Share of 24 h", "last_success": "Last success", "action": "Action", "actions": "What can be done",
  "reason": "Reason", "reason.attempts_exhausted": "attempts used up", "reason.uncertain_outcome": "uncertain outcome", "reason.ambiguous_match": "several matches", "reason.duplicate_entity": "two records", "reason.payload_conflict": "changed content",
  "reason.unreadable": "unreadable", "reason.late_after_retention": "came too late", "reason.likely_copy": "likely a copy", "reason.rejected": "rejected by the CRM", "reason.rejected_by_operator": "rejected by a person",
  "happened.uncertain_outcome": "The lead was sent to {crm}, and no clear answer came back.", "known.uncertain_outcome": "It was sent {attempts} time(s).", "unknown.uncertain_outcome": "Whether {crm} made a record of it. Look it up before anything else.",
  "happened.ambiguous_match": "{crm} has several records with this lead's key.", "known.ambiguous_match": "A record exists; none is to be made.", "unknown.ambiguous_match": "Which of them is the right one.",
  "happened.duplicate_entity": "{crm} made two records of this one lead.", "known.duplicate_entity": "Both ids; an answer came late, after the first was found.", "unknown.duplicate_entity": "Which one your people work with. Keep that one, and delete the other in the CRM.",
  "happened.payload_conflict": "The sender used the key of an earlier event again, with other content.", "known.payload_conflict": "Nothing was overwritten; the first went its own way. What differs is marked below.", "unknown.payload_conflict": "Whether this is a correction, a new lead, or a fault of the sender.",
  "happened.attempts_exhausted": "The lead could not be delivered to {crm}; all attempts are used up.", "known.attempts_exhausted": "No attempt was executed; nothing was made.", "unknown.attempts_exhausted": "Whether {crm} takes it now.",
  "happened.unreadable": "A delivery came that cannot be read.", "known.unreadable": "Its raw bytes are kept, in the time line below.", "unknown.unreadable": "What the lead says.",
  "happened.late_after_retention": "An event came that is older than keys are remembered here.", "known.late_after_retention": "Its key is not known any more.", "unknown.late_after_retention": "Whether it was delivered long ago. Look it up first.",
  "happened.likely_copy": "This looks like a copy of an earlier event that came under another key.", "known.likely_copy": "The content is the same, and it came shortly after.", "unknown.likely_copy": "Whether the customer really asked twice.",
  "happened.rejected": "{crm} refused this lead.", "known.rejected": "Nothing was made, and nothing is tried again by itself.", "unknown.rejected": "Nothing: correct the lead and send it again, or leave it.",
  "happened.rejected_by_operator": "A person decided that this lead is not to be sent.", "known": "Known", "unknown": "Not known", "said": "Last said", "case.open": "This operation waits for its next attempt.", "what_happened": "What happened",
  "action.look_up": "Look it up in the CRM now", "action.complete": "Link to a record", "action.link_this": "This is the one", "action.link_first": "Link to the record of the first:", "action.retry": "Send again", "action.create_again": "Create again", "action.forward": "Send as a lead of its own",
  "action.reject": "Reject", "action.discard": "Discard", "complete.what": "The record exists in the CRM. Where the CRM can be asked, it is checked.", "crm_id": "Id in the CRM", "reject.what": "It is not sent. It stays here with your note, and can be taken up again.",
  "retry.warning": "It was sent before. If the CRM has it after all, this makes a duplicate: look it up first.", "statement": "I checked, it is not there.", "statement.bulk": "I checked, none of them is in the CRM.",
  "look_up.running": "Asking the CRM …", "look_up.none": "The CRM has no record with this key now", "look_up.none.what": "Soon after the send that proves nothing: a CRM may execute late, and its search may lag behind.", "look_up.found": "The CRM has {count} record(s) with this key",
  "note": "Note", "note.why": "Why (kept in the audit log)", "note.maybe": "Note (kept in the audit log; may be left empty)", "cancel": "Cancel", "carry_out": "Carry it out", "load_again": "Load it again", "from": "from", "edit": "Correct the lead first",
  "decided.complete": "Linked:", "decided.retry": "Sent again:", "decided.reject": "Rejected:", "moved": "Somebody or something changed this operation in the meantime.",
  "reviews.keys": "Keys: j and k move, Enter opens, x chooses; on a case: l looks up, c links, s sends, r rejects, n is the next, b is back.", "choose": "Choose", "age": "Age", "queue.place": "{at} of {of}", "queue.next": "next case",
  "bulk": "Many at once", "bulk.chosen": "{count} chosen", "bulk.reject.title": "{count} will be rejected", "bulk.reject.what": "They are not sent. Each stays here with your note.", "bulk.retry.title": "{count} will be sent again", "bulk.retry.what": "Each is created in the CRM. You state that none of them is there.",
  "bulk.left": "{count} left as they are", "bulk.running": "Carrying it out …", "bulk.done": "{count} decided.",
  "compare": "What differs", "compare.first": "The first", "compare.this": "This one", "differs": "differs", "lead": "Lead", "lead.edited": "as corrected by a person", "lead.none": "The lead cannot be read, or its content was erased.",
  "lead.name": "Name", "lead.first_name": "First name", "lead.last_name": "Last name", "lead.phones": "Phone", "lead.emails": "E-mail", "lead.message": "Message", "lead.page": "Page", "lead.referrer": "Came from", "field": "Field", "value": "Value",
  "operation": "Operation", "source": "Source", "facts": "Facts", "key": "Key of the sender", "key.none": "none", "key.native": "the sender's own id", "key.header": "from Idempotency-Key", "key.field": "from a field of the content", "key.resubmit_window": "no key: the same content within the window is the same", "key.generated": "no key: made here",
  "crm_key": "Key in the CRM", "hash": "Hash of the content", "hash_rule": "Rule of the hash", "received": "Received", "updated": "Changed", "attempts": "Create calls", "version": "Version", "erased": "erased by retention", "in_crm": "In the CRM",
  "next_at": "next attempt", "held": "held by", "until": "until", "timeline": "Time line", "event.delivery": "Delivery", "event.create": "Create call {number}", "event.lookup": "Look-up of call {number}", "event.open": "no answer yet", "took": "took",
  "request_answer": "Request and answer", "request": "Request", "answer": "Answer", "licence": "Allowed because", "licence.first_send": "it was never sent", "licence.not_executed": "the attempt before was not executed", "licence.lookup_absent": "a trusted look-up found nothing", "licence.operator": "a person says that nothing was created",
  "class.ok": "good", "class.not_sent": "not sent", "class.throttled": "told to slow down", "class.not_executed": "not executed", "class.uncertain": "uncertain", "class.rejected": "rejected", "class.account": "stopped for the whole account", "class.duplicate": "exists already",
  "related": "Related operations", "related.what": "Of the same key, or with the same phone or e-mail. A hint for people; nothing is merged by it.",
  "search": "Search", "search.label": "Operation id, key, id in the CRM, phone or e-mail", "search.hint": "+7 916 123-45-67", "search.found": "Found", "all": "all", "more": "More", "export": "Export as CSV", "nothing": "Nothing here.", "from_time": "Received from", "to_time": "Received before",
  "verdict": "Verdict", "verdict.new": "new", "verdict.replay": "repeat", "verdict.replay_unverified": "repeat, unverified", "verdict.conflict": "conflict", "verdict.rejected": "refused", "verdict.test": "test", "verdict.spam": "spam", "verdict.ignored": "no lead",
  "why": "Why", "content": "Content", "delivery": "Delivery", "base64": "Not text: shown in Base64.", "truncated": "Only the beginning is shown.", "deliveries.what": "What came and made no operation, with the reason.",
  "when": "When", "actor": "Who", "subject": "On what", "from_to": "From, to", "did.complete": "linked", "did.retry": "sent again", "did.reject": "rejected", "did.look_up": "looked up", "did.suspend": "suspended", "did.resume": "resumed", "did.sign_in": "signed in", "did.sign_in_failed": "failed to sign in",
  "did.sign_out": "signed out", "did.sign_out_everywhere": "signed out everywhere", "did.token_create": "made a token", "did.token_revoke": "revoked a token", "did.person_create": "added a person", "did.person_role": "changed a role", "did.person_password": "changed a password", "did.person_disable": "shut out a person", "did.person_enable": "let in a person",
  "people.people": "People", "people.tokens": "Tokens", "people.tokens.what": "For programs, and for people who prefer them.", "people.add": "Add", "people.make_token": "Make a token", "people.token_made": "The token of", "people.once": "Keep it safe: it is shown this once.", "people.in": "may sign in", "people.out": "shut out",
  "people.shut_out": "Shut out", "people.let_in": "Let in again", "people.revoke": "Revoke", "people.revoked": "revoked", "people.active": "active", "made": "Made", "last_use": "Last use", "save": "Save", "saved": "Saved.",
  "api.what": "What programs may ask, made from the gateway's own code:", "api.body": "Body:", "api.shapes": "Shapes", "optional": "optional", "ago": "{time} ago", "unit.ms": "ms", "unit.s": "s", "unit.min": "min", "unit.h": "h", "unit.d": "d",
};

const RU = {
  "overview": "Обзор", "reviews": "Разбор", "operations": "Операции", "deliveries": "Отказы на входе", "audit": "Журнал действий", "people": "Люди и токены", "api": "API",
  "menu": "Страницы", "skip": "К содержанию", "language": "Язык", "theme": "Цвета", "theme.auto": "как в системе", "theme.light": "светлые", "theme.dark": "тёмные",
  "sign_in": "Вход", "sign_in.by_token": "Войти по токену", "sign_in.wrong": "Имя с паролем или токен здесь неизвестны.",
  "sign_in.token_hint": "Первый токен: leadonce token create --role admin --name …", "sign_out": "Выйти", "sign_out_everywhere": "Выйти везде", "signed_out": "Сеанс окончен, войдите снова.",
  "name": "Имя", "password": "Пароль", "password.new": "Новый пароль", "password.hint": "Не меньше 12 знаков; несколько слов легко запомнить.", "token": "Токен",
  "first.title": "Первый администратор", "first.text": "Пока никто не может войти. Задайте имя и пароль первого администратора; ссылка действует один раз.", "first.make": "Создать и войти",
  "role": "Роль", "role.viewer": "наблюдатель", "role.operator": "оператор", "role.admin": "администратор",
  "fault.title": "Страницу нельзя показать", "fault.network": "Шлюз не отвечает. Страница попробует ещё раз сама.", "fault.program": "На странице ошибка; загрузите её заново.", "nothing_here": "По этому адресу ничего нет.",
  "needs.nothing": "Сейчас ничего не требует вашего внимания.", "needs.title": "Требует внимания", "needs.suspended": "Направление остановлено:", "needs.waiting": "ждут: {count}",
  "states": "Операции по состояниям", "state": "Состояние", "state.received": "принята", "state.in_progress": "в работе", "state.completed": "выполнена", "state.failed_terminal": "не выполнена", "state.needs_review": "на разборе",
  "oldest": "старейшая", "absorbed": "повторов поглощено", "refused": "отказов", "last_day": "за 24 часа", "chart.states": "Заявки по часам и исходам", "chart.sources": "Заявки по часам и источникам", "chart.table": "Таблицей", "hour": "Час",
  "destinations": "Направления", "destination": "Направление", "destination.active": "работает", "destination.throttled": "замедлено", "destination.suspended": "остановлено",
  "destination.resume": "Возобновить", "destination.suspend": "Остановить", "destination.suspend.what": "До возобновления вызовов не будет; заявки ждут, ни одна не теряется.", "destination.resume.done": "Возобновлено:", "destination.suspend.done": "Остановлено:",
  "since": "с", "waiting": "Ждут", "share": "Доля за 24 ч", "last_success": "Последний успех", "action": "Действие", "actions": "Что можно сделать",
  "reason": "Причина", "reason.attempts_exhausted": "попытки исчерпаны", "reason.uncertain_outcome": "исход неизвестен", "reason.ambiguous_match": "несколько совпадений", "reason.duplicate_entity": "две записи", "reason.payload_conflict": "другое содержание",
  "reason.unreadable": "не читается", "reason.late_after_retention": "пришло слишком поздно", "reason.likely_copy": "похоже на копию", "reason.rejected": "отклонена в CRM", "reason.rejected_by_operator": "отклонена человеком",
  "happened.uncertain_outcome": "Заявка отправлена в {crm}, но ясного ответа не пришло.", "known.uncertain_outcome": "Отправлена раз: {attempts}.", "unknown.uncertain_outcome": "Создала ли {crm} запись. Сначала проверьте это.",
  "happened.ambiguous_match": "В {crm} несколько записей с ключом этой заявки.", "known.ambiguous_match": "Запись есть, новую создавать не надо.", "unknown.ambiguous_match": "Какая из них верная.",
  "happened.duplicate_entity": "{crm} создала две записи одной заявки.", "known.duplicate_entity": "Оба номера; один ответ пришёл поздно, когда первая запись уже нашлась.", "unknown.duplicate_entity": "С какой работают ваши люди. Оставьте её, другую удалите в CRM.",
  "happened.payload_conflict": "Отправитель повторил ключ прежнего события с другим содержанием.", "known.payload_conflict": "Ничего не перезаписано; первая пошла своим путём. Отличия отмечены ниже.", "unknown.payload_conflict": "Исправление это, новая заявка или ошибка отправителя.",
  "happened.attempts_exhausted": "Заявку не удалось передать в {crm}, попытки исчерпаны.", "known.attempts_exhausted": "Ни одна попытка не выполнена, ничего не создано.", "unknown.attempts_exhausted": "Примет ли {crm} её теперь.",
  "happened.unreadable": "Пришло сообщение, которое нельзя прочитать.", "known.unreadable": "Исходные байты сохранены, они в истории ниже.", "unknown.unreadable": "Что в заявке.",
  "happened.late_after_retention": "Пришло событие старше, чем здесь помнят ключи.", "known.late_after_retention": "Его ключ уже неизвестен.", "unknown.late_after_retention": "Не было ли оно передано давно. Сначала проверьте в CRM.",
  "happened.likely_copy": "Похоже на копию прежнего события под другим ключом.", "known.likely_copy": "Содержание то же, пришло вскоре после.", "unknown.likely_copy": "Не обратился ли клиент действительно дважды.",
  "happened.rejected": "{crm} отклонила заявку.", "known.rejected": "Ничего не создано, само ничего не повторится.", "unknown.rejected": "Ничего: исправьте и отправьте снова или оставьте так.",
  "happened.rejected_by_operator": "Человек решил не отправлять эту заявку.", "known": "Известно", "unknown": "Неизвестно", "said": "Последнее сообщение", "case.open": "Операция ждёт следующей попытки.", "what_happened": "Что произошло",
  "action.look_up": "Проверить в CRM", "action.complete": "Связать с записью", "action.link_this": "Это она", "action.link_first": "Связать с записью первой:", "action.retry": "Отправить снова", "action.create_again": "Создать заново", "action.forward": "Отправить отдельной заявкой",
  "action.reject": "Отклонить", "action.discard": "Отбросить", "complete.what": "Запись в CRM есть. Если CRM можно спросить, это проверяется.", "crm_id": "Номер в CRM", "reject.what": "Не отправляется. Остаётся здесь с вашим пояснением, к ней можно вернуться.",
  "retry.warning": "Заявка уже отправлялась. Если она всё же есть в CRM, получится дубль: сначала проверьте.", "statement": "Проверено, её там нет.", "statement.bulk": "Проверено, ни одной из них в CRM нет.",
  "look_up.running": "Спрашиваем CRM …", "look_up.none": "Сейчас в CRM нет записи с этим ключом", "look_up.none.what": "Вскоре после отправки это ничего не доказывает: CRM может исполнить поздно, а её поиск отставать.", "look_up.found": "В CRM записей с этим ключом: {count}",
  "note": "Пояснение", "note.why": "Почему (останется в журнале)", "note.maybe": "Пояснение (останется в журнале; можно не писать)", "cancel": "Отмена", "carry_out": "Выполнить", "load_again": "Загрузить заново", "from": "с", "edit": "Сначала исправить заявку",
  "decided.complete": "Связана:", "decided.retry": "Отправлена снова:", "decided.reject": "Отклонена:", "moved": "Тем временем операция изменилась.",
  "reviews.keys": "Клавиши: j и k – вниз и вверх, Enter – открыть, x – выбрать; в деле: l – проверить, c – связать, s – отправить, r – отклонить, n – следующее, b – назад.", "choose": "Выбрать", "age": "Возраст", "queue.place": "{at} из {of}", "queue.next": "следующее дело",
  "bulk": "Сразу много", "bulk.chosen": "Выбрано: {count}", "bulk.reject.title": "Будет отклонено: {count}", "bulk.reject.what": "Они не отправляются. Каждая остаётся здесь с вашим пояснением.", "bulk.retry.title": "Будет отправлено снова: {count}", "bulk.retry.what": "Каждая создаётся в CRM. Вы утверждаете, что ни одной из них там нет.",
  "bulk.left": "Оставлено как есть: {count}", "bulk.running": "Выполняется …", "bulk.done": "Решено: {count}.",
  "compare": "Чем отличаются", "compare.first": "Первая", "compare.this": "Эта", "differs": "отличается", "lead": "Заявка", "lead.edited": "исправлена человеком", "lead.none": "Заявку нельзя прочитать, или её содержание стёрто.",
  "lead.name": "Имя", "lead.first_name": "Имя отдельно", "lead.last_name": "Фамилия", "lead.phones": "Телефон", "lead.emails": "Почта", "lead.message": "Сообщение", "lead.page": "Страница", "lead.referrer": "Откуда пришёл", "field": "Поле", "value": "Значение",
  "operation": "Операция", "source": "Источник", "facts": "Сведения", "key": "Ключ отправителя", "key.none": "нет", "key.native": "собственный номер отправителя", "key.header": "из Idempotency-Key", "key.field": "из поля содержания", "key.resubmit_window": "ключа нет: то же содержание в пределах окна – то же самое", "key.generated": "ключа нет: создан здесь",
  "crm_key": "Ключ в CRM", "hash": "Хеш содержания", "hash_rule": "Правило хеша", "received": "Принята", "updated": "Изменена", "attempts": "Вызовов создания", "version": "Версия", "erased": "стёрто по сроку хранения", "in_crm": "В CRM",
  "next_at": "следующая попытка", "held": "держит", "until": "до", "timeline": "История", "event.delivery": "Приход", "event.create": "Вызов создания {number}", "event.lookup": "Проверка вызова {number}", "event.open": "ответа ещё нет", "took": "длился",
  "request_answer": "Запрос и ответ", "request": "Запрос", "answer": "Ответ", "licence": "Можно, потому что", "licence.first_send": "ещё не отправлялась", "licence.not_executed": "прошлая попытка не исполнена", "licence.lookup_absent": "надёжная проверка ничего не нашла", "licence.operator": "человек утверждает, что ничего не создано",
  "class.ok": "успех", "class.not_sent": "не отправлено", "class.throttled": "просят реже", "class.not_executed": "не исполнено", "class.uncertain": "неизвестно", "class.rejected": "отклонено", "class.account": "остановлен весь доступ", "class.duplicate": "уже есть",
  "related": "Связанные операции", "related.what": "С тем же ключом, телефоном или почтой. Подсказка людям; ничего не сливается.",
  "search": "Найти", "search.label": "Номер операции, ключ, номер в CRM, телефон или почта", "search.hint": "+7 916 123-45-67", "search.found": "Найдено", "all": "все", "more": "Ещё", "export": "Выгрузить CSV", "nothing": "Здесь пусто.", "from_time": "Приняты с", "to_time": "Приняты до",
  "verdict": "Итог", "verdict.new": "новая", "verdict.replay": "повтор", "verdict.replay_unverified": "повтор без сверки", "verdict.conflict": "конфликт", "verdict.rejected": "отказ", "verdict.test": "проверка", "verdict.spam": "спам", "verdict.ignored": "не заявка",
  "why": "Почему", "content": "Содержание", "delivery": "Приход", "base64": "Не текст: показано в Base64.", "truncated": "Показано только начало.", "deliveries.what": "Что пришло и не стало операцией, с причиной.",
  "when": "Когда", "actor": "Кто", "subject": "Что", "from_to": "Из, в", "did.complete": "связал(а)", "did.retry": "отправил(а) снова", "did.reject": "отклонил(а)", "did.look_up": "проверил(а) в CRM", "did.suspend": "остановил(а)", "did.resume": "возобновил(а)", "did.sign_in": "вошёл(ла)", "did.sign_in_failed": "не смог(ла) войти",
  "did.sign_out": "вышел(ла)", "did.sign_out_everywhere": "вышел(ла) везде", "did.token_create": "создал(а) токен", "did.token_revoke": "отозвал(а) токен", "did.person_create": "добавил(а) человека", "did.person_role": "изменил(а) роль", "did.person_password": "изменил(а) пароль", "did.person_disable": "закрыл(а) доступ", "did.person_enable": "вернул(а) доступ",
  "people.people": "Люди", "people.tokens": "Токены", "people.tokens.what": "Для программ и для людей, которым так удобнее.", "people.add": "Добавить", "people.make_token": "Создать токен", "people.token_made": "Токен для", "people.once": "Сохраните его: он показан один раз.", "people.in": "может войти", "people.out": "доступ закрыт",
  "people.shut_out": "Закрыть доступ", "people.let_in": "Вернуть доступ", "people.revoke": "Отозвать", "people.revoked": "отозван", "people.active": "действует", "made": "Создан", "last_use": "Последнее использование", "save": "Сохранить", "saved": "Сохранено.",
  "api.what": "Что могут спрашивать программы; сделано из кода самого шлюза:", "api.body": "Тело:", "api.shapes": "Формы", "optional": "не обязательно", "ago": "{time} назад", "unit.ms": "мс", "unit.s": "с", "unit.min": "мин", "unit.h": "ч", "unit.d": "дн",
};

const ALL = { en: EN, ru: RU };

/** The language: as chosen, else the browser's, else English. */
export function language() {
  const chosen = localStorage.getItem("language");
  if (ALL[chosen]) return chosen;
  return navigator.languages.map((tag) => tag.slice(0, 2)).find((tag) => ALL[tag]) ?? "en";
}

export function setLanguage(chosen) {
  localStorage.setItem("language", chosen);
}

/** The words of a key, with its values put in. */
export function t(key, values = {}) {
  const words = ALL[language()][key] ?? EN[key] ?? key;
  return words.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/** Whether there are words of a key. */
t.has = (key) => key in EN;
