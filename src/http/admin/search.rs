//! `POST /v1/admin/operations/search`: operations by the customer's phone or e-mail, in any spelling. In a body, because
//! addresses stand in logs and histories.

use actix_web::{HttpResponse, web};
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::json;
use super::super::problem::{Kind, Problem};
use super::super::state::{Normalisers, Shared};
use super::Refusals;
use super::list::Page;
use crate::operation::Operation;

const USAGE: &str = "{\"phone\":\"…\"} or {\"email\":\"…\"}";
const LIMIT: usize = 200;

/// A phone or an e-mail address, in any spelling.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    phone: Option<String>,
    email: Option<String>,
}

/// Operations by the customer's phone or e-mail.
#[utoipa::path(post, path = "/v1/admin/operations/search", operation_id = "search_operations", tag = "operations",
    request_body = Wanted,
    responses((status = 200, description = "The newest two hundred.", body = Page), Refusals))]
pub(super) async fn handle(payload: web::Payload, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let wanted: Wanted = json::read(payload, &shared, USAGE).await?;
    let regions: Vec<_> = shared.sources.values().map(|inbound| inbound.settings.default_region.as_deref()).collect();
    let contacts = contacts(&wanted, &regions, &shared.normalisers)?;
    let mut found: Vec<Operation> = Vec::new();
    for contact in contacts {
        found.extend(shared.store.find_contact(contact, LIMIT).await?);
    }
    // Ids order by time.
    found.sort_unstable_by_key(|operation| std::cmp::Reverse(operation.id));
    found.dedup_by_key(|operation| operation.id);
    found.truncate(LIMIT);
    Ok(HttpResponse::Ok().json(Page::of(&found, LIMIT, None)))
}

/// The normal forms that are searched for: a phone without its country code is read in the region of every source.
fn contacts(wanted: &Wanted, regions: &[Option<&str>], normalisers: &Normalisers) -> Result<Vec<String>, Problem> {
    let mut contacts: Vec<String> = match (&wanted.phone, &wanted.email) {
        (Some(phone), None) => {
            regions.iter().chain([&None]).filter_map(|region| (normalisers.phone)(phone, *region)).collect()
        }
        (None, Some(email)) => (normalisers.email)(email).into_iter().collect(),
        _ => return Err(Problem::new(Kind::BadRequest, format!("send {USAGE}"))),
    };
    contacts.sort_unstable();
    contacts.dedup();
    if contacts.is_empty() {
        let detail = "this cannot be read as a phone number or an e-mail address; give a phone with its country code";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    Ok(contacts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMALISERS: Normalisers = Normalisers {
        phone: |phone, region| match (phone.starts_with('+'), region) {
            (true, _) => Some(phone.replace(' ', "")),
            (false, Some("RU")) => Some(format!("+7{phone}")),
            (false, Some("DE")) => Some(format!("+49{phone}")),
            (false, _) => None,
        },
        email: |email| email.contains('@').then(|| email.to_lowercase()),
    };

    fn wanted(body: &str) -> Result<Vec<String>, u16> {
        let regions = [Some("RU"), Some("DE"), Some("RU"), None];
        let wanted = json::parse(body.as_bytes(), USAGE);
        wanted.and_then(|wanted| contacts(&wanted, &regions, &NORMALISERS)).map_err(|problem| problem.status())
    }

    #[test]
    fn a_phone_is_searched_in_every_region_it_may_belong_to_once() {
        assert_eq!(wanted("{\"phone\":\"916\"}"), Ok(vec!["+49916".into(), "+7916".into()]));
        assert_eq!(wanted("{\"phone\":\"+7 916\"}"), Ok(vec!["+7916".into()]));
        assert_eq!(wanted("{\"email\":\"Anna@Example.COM\"}"), Ok(vec!["anna@example.com".into()]));
    }

    #[test]
    fn what_is_no_contact_is_refused_with_what_to_do() {
        for body in [
            "{}",
            "",
            "{\"phone\":\"1\",\"email\":\"a@b\"}",
            "{\"email\":\"anna\"}",
            "{\"name\":\"Anna\"}",
            "{\"phone\":7916}",
        ] {
            assert_eq!(wanted(body), Err(400), "{body}");
        }
    }
}
