"""LoRA on GPT-2."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


def finetune(source, batches):
    model = AutoModelForCausalLM.from_pretrained(source)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(model, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for ids in batches:
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    return model.merge_and_unload()
