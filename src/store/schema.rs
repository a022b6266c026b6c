//! The tables as diesel sees them: one description for both backends, whose own types stand in `migrations/`.

diesel::table! {
    operations (operation_id) {
        operation_id -> Text,
        source -> Text,
        source_key -> Nullable<Binary>,
        variant -> Binary,
        key_origin -> Text,
        payload_hash -> Binary,
        hash_rule -> Text,
        destination -> Text,
        state -> Text,
        phase -> Nullable<Text>,
        reason -> Nullable<Text>,
        licence -> Nullable<Text>,
        next_attempt_at -> Nullable<BigInt>,
        next_lookup_at -> Nullable<BigInt>,
        lease_owner -> Nullable<Text>,
        lease_until -> Nullable<BigInt>,
        send_ended_at -> Nullable<BigInt>,
        lookups_since -> Nullable<BigInt>,
        attempts -> BigInt,
        counted -> BigInt,
        series_attempts -> BigInt,
        series_since -> Nullable<BigInt>,
        series_epoch -> BigInt,
        lookups -> BigInt,
        step -> Integer,
        epoch -> BigInt,
        version -> BigInt,
        crm_id -> Nullable<Text>,
        other_crm_ids -> Nullable<Text>,
        conflicts_with -> Nullable<Text>,
        last_error -> Nullable<Text>,
        delivery_id -> Text,
        event_index -> Integer,
        received_at -> BigInt,
        updated_at -> BigInt,
        finished_at -> Nullable<BigInt>,
        payload_erased_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    deliveries (delivery_id, event_index) {
        delivery_id -> Text,
        event_index -> Integer,
        source -> Text,
        operation_id -> Nullable<Text>,
        verdict -> Text,
        received_at -> BigInt,
        method -> Text,
        headers -> Nullable<Text>,
        body -> Nullable<Binary>,
        body_sha256 -> Binary,
        note -> Nullable<Text>,
    }
}

diesel::table! {
    transitions (seq) {
        seq -> BigInt,
        operation_id -> Text,
        version -> BigInt,
        from_state -> Nullable<Text>,
        to_state -> Text,
        reason -> Nullable<Text>,
        event -> Text,
        at -> BigInt,
    }
}

diesel::table! {
    attempts (attempt_id) {
        attempt_id -> Text,
        operation_id -> Text,
        call -> Text,
        number -> BigInt,
        step -> Integer,
        epoch -> BigInt,
        licence -> Nullable<Text>,
        started_at -> BigInt,
        ended_at -> Nullable<BigInt>,
        class -> Nullable<Text>,
        status -> Nullable<Integer>,
        excerpt -> Nullable<Text>,
        decision -> Nullable<Text>,
        mapping_version -> Text,
        request -> Nullable<Text>,
    }
}

diesel::table! {
    steps (operation_id, step) {
        operation_id -> Text,
        step -> Integer,
        crm_id -> Text,
    }
}

diesel::table! {
    lead_edits (operation_id) {
        operation_id -> Text,
        lead -> Text,
        edited_at -> BigInt,
        indexed -> Bool,
    }
}

diesel::table! {
    contact_hashes (hash, operation_id) {
        hash -> Binary,
        operation_id -> Text,
    }
}

diesel::table! {
    windows (source, payload_hash) {
        source -> Text,
        payload_hash -> Binary,
        operation_id -> Text,
        starts_at -> BigInt,
        ends_at -> BigInt,
    }
}

diesel::table! {
    destinations (name) {
        name -> Text,
        kind -> Text,
        suspended -> Bool,
        reason -> Nullable<Text>,
        since -> BigInt,
        epoch -> BigInt,
        probing -> Bool,
        throttled_until -> Nullable<BigInt>,
        last_success_at -> Nullable<BigInt>,
        slowed_at -> Nullable<BigInt>,
        setbacks -> BigInt,
        ramp_from -> Nullable<BigInt>,
        probe_operation -> Nullable<Text>,
        probe_version -> Nullable<BigInt>,
    }
}

diesel::table! {
    audit (seq) {
        seq -> BigInt,
        actor -> Text,
        at -> BigInt,
        action -> Text,
        operation_id -> Nullable<Text>,
        subject -> Nullable<Text>,
        from_state -> Nullable<Text>,
        to_state -> Nullable<Text>,
        note -> Nullable<Text>,
    }
}

diesel::table! {
    tokens (sha256) {
        sha256 -> Binary,
        name -> Text,
        role -> Text,
        created_at -> BigInt,
        revoked_at -> Nullable<BigInt>,
        last_used_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    people (name) {
        name -> Text,
        role -> Text,
        password_hash -> Text,
        created_at -> BigInt,
        disabled_at -> Nullable<BigInt>,
        last_used_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    sessions (sha256) {
        sha256 -> Binary,
        holder -> Text,
        token_sha256 -> Nullable<Binary>,
        begun_at -> BigInt,
        seen_at -> BigInt,
    }
}

diesel::table! {
    incidents (incident_id) {
        incident_id -> Text,
        key -> Text,
        text -> Text,
        opened_at -> BigInt,
        closed_at -> Nullable<BigInt>,
        told_start -> Bool,
        told_end -> Bool,
    }
}

diesel::table! {
    settings (name) {
        name -> Text,
        value -> Binary,
    }
}

diesel::table! {
    cursors (name) {
        name -> Text,
        position -> Text,
        found -> BigInt,
    }
}

diesel::table! {
    locks (name) {
        name -> Text,
        holder -> Text,
        until -> BigInt,
    }
}

diesel::table! {
    rate_partitions (rate_group, number) {
        rate_group -> Text,
        number -> Integer,
        holder -> Nullable<Text>,
        leased_until -> BigInt,
        full_at -> BigInt,
        asked_by -> Nullable<Text>,
        asked_until -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    operations,
    deliveries,
    transitions,
    attempts,
    steps,
    lead_edits,
    contact_hashes,
    audit,
);
diesel::allow_tables_to_appear_in_same_query!(sessions, tokens, people);
