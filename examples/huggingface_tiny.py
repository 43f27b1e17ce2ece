"""The Trainer of Hugging Face's transformers on a tiny BERT, made from its configuration.

    pip install 'penstock[huggingface]'
    python examples/huggingface_tiny.py

Nothing is downloaded. The data is synthetic: rows of random tokens, to be told apart by whether
most of them are odd.
"""

import penstock
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    logging,
)

TOKENS, LENGTH, EPOCHS = 16, 8, 9


def rows(number, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(TOKENS, (number, LENGTH), generator=generator)
    odd = ((tokens % 2).sum(1) > LENGTH // 2).long()
    return [{"input_ids": row, "labels": label} for row, label in zip(tokens, odd, strict=True)]


def accuracy(prediction):
    return {"accuracy": (prediction.predictions.argmax(1) == prediction.label_ids).mean()}


@penstock.epoch_function
def train(trial):
    logging.set_verbosity_error()
    report = penstock.HuggingFaceCallback(trial)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=TOKENS,
            hidden_size=trial.params["hidden"],
            intermediate_size=2 * trial.params["hidden"],
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=LENGTH,
        )
    )
    arguments = TrainingArguments(
        report.folder,
        num_train_epochs=EPOCHS,
        learning_rate=trial.params["lr"],
        per_device_train_batch_size=32,
        per_device_eval_batch_size=256,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows(1024, seed=0),
        eval_dataset=rows(512, seed=1),
        compute_metrics=accuracy,
        callbacks=[report],
    )
    trainer.train(resume_from_checkpoint=report.checkpoint)


if __name__ == "__main__":
    study = penstock.create_study(
        direction="maximize",
        metric="eval_accuracy",
        strategy=penstock.ASHA(max_epochs=EPOCHS, eta=3),
        seed=0,
    )
    study.optimize(
        train,
        {"lr": penstock.Float(1e-4, 1e-1, log=True), "hidden": [16, 32, 64]},
        n_trials=9,
    )
    best = study.best_trial
    print(f"best: trial {best.number}, accuracy {best.value:.4f}, {best.params}")
