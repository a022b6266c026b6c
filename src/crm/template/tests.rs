use serde_json::json;

use super::*;

fn orders() -> (Any, Any) {
    let orders = sample_orders();
    (lead_context(&orders[0], "create"), lead_context(&orders[1], "create"))
}

fn rendered(template: Value, context: &Any) -> Value {
    Json::new(&template, Scope::Lead).expect("good templates").render(context).expect("a value").expect("some")
}

#[test]
fn no_value_can_break_the_json_around_it() {
    let mut order = sample_orders().remove(0);
    order.lead.message = Some("\"}],\n{{ lead.name }} \\ \u{1}".into());
    let context = lead_context(&order, "create");
    let body = rendered(json!({"a": {"b": ["x: {{ lead.message }}"]}, "c": "{{ lead.message }}"}), &context);
    let again: Value = serde_json::from_str(&body.to_string()).expect("JSON");
    assert_eq!(again["a"]["b"][0], "x: \"}],\n{{ lead.name }} \\ \u{1}");
    assert_eq!(again["c"], "\"}],\n{{ lead.name }} \\ \u{1}");
}

#[test]
fn one_expression_keeps_its_type_and_what_is_missing_is_left_out() {
    let (full, empty) = orders();
    let template = json!({
        "phones": "{{ lead.phones }}", "name": "{{ lead.name }}", "text": "Hello {{ lead.name }}!",
        "upper": "{{ lead.name | upper }}", "n": 5, "flag": true, "list": ["{{ lead.email }}", "fixed"],
        "named": "{{ lead.name or 'nobody' }}", "default": "{{ lead.fields.colour | default('red') }}",
        "utm": "{{ lead.utm.source }}", "deep": "{{ lead.phones[3].text }}",
    });
    assert_eq!(
        rendered(template.clone(), &full),
        json!({
            "phones": [{"text": "+79161234567", "normal": "+79161234567"}], "name": "Anna Ivanova",
            "text": "Hello Anna Ivanova!", "upper": "ANNA IVANOVA", "n": 5, "flag": true,
            "list": ["anna@example.com", "fixed"], "named": "Anna Ivanova", "default": "red",
        })
    );
    assert_eq!(
        rendered(template, &empty),
        json!({
            "phones": [], "text": "Hello !", "upper": "", "n": 5, "flag": true, "list": ["fixed"],
            "named": "nobody", "default": "red",
        })
    );
}

#[test]
fn faults_are_found_before_the_first_lead() {
    for (template, scope, words) in [
        ("{{ lead.nam }}", Scope::Lead, "lead has no nam"),
        ("{{ lad.name }}", Scope::Lead, "lad is not known"),
        ("{% for p in lead.phnes %}{{ p.text }}{% endfor %}", Scope::Lead, "lead has no phnes"),
        ("{{ lead.name }}", Scope::Keys, "lead is not known"),
        ("{{ crm_key }}", Scope::CrmId, "crm_key is not known"),
        ("{{ lead.name", Scope::Lead, "no good template"),
        ("{{ lead.name | nofilter }}", Scope::Lead, "no good template"),
        ("{% include 'x' %}", Scope::Lead, "no good template"),
    ] {
        let fault = Template::new(template, Place::Text, scope).expect_err(template);
        assert!(fault.contains(words), "{template}: {fault}");
        if scope == Scope::Lead {
            let faults = Json::new(&json!({"a": {"b": [template]}}), scope).expect_err(template);
            assert_eq!(faults[0].0, ".a.b.0", "{template}");
        }
    }
}

#[test]
fn loops_over_contacts_and_other_fields_are_possible() {
    let (full, _) = orders();
    let template = "{% for p in lead.phones %}{{ p.text }};{% endfor %}{{ lead.fields['service'] }}";
    let template = Template::new(template, Place::Text, Scope::Lead).expect("a good template");
    assert_eq!(template.render(&full).as_deref(), Ok("+79161234567;x"));
}

#[test]
fn values_in_an_address_are_encoded() {
    let id = CrmId::try_from("a/b?c=д".to_owned()).expect("an id");
    let template = Template::new("https://x/{{ crm_id }}?e=1", Place::Address, Scope::CrmId).expect("a good template");
    assert_eq!(template.render(&id_context(&id)).as_deref(), Ok("https://x/a%2Fb%3Fc%3D%D0%B4?e=1"));
}

#[test]
fn equal_names_are_joined() {
    let pairs = [("a", "1"), ("b", "2"), ("a", "3")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(joined(&pairs).get("a").map(String::as_str), Some("1, 3"));
}
