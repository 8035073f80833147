/*
 * How scored texts and generated samples are shown: as a table for people, or as JSON lines for
 * programs. A command drives one printer and does not know which.
 */
#ifndef ALEA_CLI_PRINTER_H
#define ALEA_CLI_PRINTER_H

#include "cli/output.h"
#include "cli/session.h"
#include "runtime/engine.h"
#include "runtime/score_text.h"

/* A text's name, given back as it came. */
typedef struct alea_text_id {
    enum { ALEA_ID_TEXT, ALEA_ID_INT, ALEA_ID_UINT, ALEA_ID_REAL } kind;
    alea_bytes text; /* valid UTF-8 */
    int64_t integer;
    uint64_t natural;
    double real;
} alea_text_id;

/* A sample in the making. */
typedef struct alea_sample {
    const alea_text_id *prompt; /* NULL: there is but one prompt */
    int32_t index;              /* of the prompt's samples */
} alea_sample;

typedef struct alea_sampled {
    int32_t index;         /* of the token in its sample */
    int32_t visible_bytes; /* how many of its bytes belong to the text: a stop string may cut it */
    const alea_row_report *report; /* over the raw row: token, logprob, rank, alternatives */
} alea_sampled;

typedef struct alea_sample_end {
    alea_finish finish; /* END, STOP or LENGTH */
    const char *stop;   /* the stop string; NULL: none */
} alea_sample_end;

typedef struct alea_printer alea_printer;

/* Complaints are the output's and the spool's own; a negative status ends the command. */
typedef struct alea_printer_api {
    alea_status (*text_begin)(alea_printer *printer, const alea_text_id *id);
    alea_status (*text_token)(alea_printer *printer, const alea_scored *scored);
    alea_status (*text_end)(alea_printer *printer, const alea_score_sums *sums);

    alea_status (*sample_begin)(alea_printer *printer, const alea_sample *sample);
    alea_status (*sample_token)(alea_printer *printer, const alea_sampled *sampled);
    alea_status (*sample_end)(alea_printer *printer, const alea_sample_end *end);

    void (*free)(alea_printer *printer);
} alea_printer_api;

/* Base of both; an implementation puts it first. */
struct alea_printer {
    const alea_printer_api *api;
    const alea_settings *settings;
    const alea_session *session;
    alea_output *output;
    uint64_t seed; /* of the samples */
};

/* NULL: out of memory, complained about. */
alea_printer *alea__printer_table(const alea_settings *settings, const alea_session *session,
                                  alea_output *output);
alea_printer *alea__printer_json(const alea_settings *settings, const alea_session *session,
                                 alea_output *output);

#endif
